"""Applies the token rules of a policy to a batch: the mask and weight of each token, and the columns that count them.

This needs the log-probs, so it runs in the trainer; the service receives only the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.column_schema import COLUMNS, Pair
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs, valid_tokens
from trmon_client.core.inputs.tokens import InputLayout
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.reduction.sequences import block_tokens
from trmon_client.core.reduction.token_terms import RATIOS, clamp_log_ratio, k3, pairs_of


def kept_by_second_moment(xp: Arrays, squares: Array, *, valid: Array, limit: float | None) -> Array:
    """Return which tokens M2PO keeps, bool [B, T]: at least one valid token; of equal d^2, the first ones.

    Args: squares: d^2, [B, T]; valid: bool [B, T]; limit: the mean of the kept d^2 is below it, unless one is kept.
    No value is read from a device, because no shape depends on one.
    Source: [M2PO] (arXiv 2510.01161), as AReaL computes it; formulas, section 6.
    """
    if not len(squares):
        return valid
    flat = xp.where(valid, squares, math.inf).reshape(-1)
    order = xp.order(flat)
    n_smallest = xp.running_sum(xp.cast(flat >= 0.0, "f8")[None], -1)[0]
    mean = xp.running_sum(flat[order][None], -1)[0] / n_smallest
    kept = (mean < limit) | (n_smallest <= 1.0)
    return valid & kept[xp.order(order)].reshape(valid.shape)


def fraction_dropped(values: Array, counts: Array, *, limit: float) -> float:
    """Return the fraction of tokens that M2PO drops, of tokens counted by value.

    Args: values: d^2, ascending, [N]; counts: the tokens of each value, [N].
    Returns: nan without tokens.
    Source: formulas, section 6.
    """
    total = float(counts.sum())
    if not total:
        return math.nan
    kept = excess_sum = 0.0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        fitting = min(float(count), _n_fitting(value - limit, excess_sum))
        kept += fitting
        excess_sum += fitting * (value - limit) if fitting else 0.0
        if fitting < count:
            break
    return 1.0 - max(1.0, kept) / total


def _n_fitting(excess: float, excess_sum: float) -> float:
    """Return how many tokens can be added before the sum of d^2 - limit of the kept ones is no longer below 0."""
    if excess < 0:
        return math.inf
    if excess == 0 or excess == math.inf:
        return math.inf if excess == 0 > excess_sum else 0.0
    return max(0.0, math.ceil(-excess_sum / excess) - 1.0)


def squares_of_bins(edges: Array, *, at: str) -> Array:
    """Return d^2 of each bin of a histogram at its smallest, middle or largest |d|; the overflow bins are open.

    Args: edges: ascending, [N - 1]; at: `smallest`, `middle` or `largest`.
    """
    low = np.concatenate([[-math.inf], edges])
    high = np.concatenate([edges, [math.inf]])
    smallest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    largest = np.maximum(np.abs(low), np.abs(high))
    reach = {"smallest": smallest, "largest": largest, "middle": (smallest + largest) / 2}[at]
    return np.asarray(np.square(reach))


DPPO_MAX_RATIO = 20.0
"""DPPO truncates its weight here; a smaller limit costs it performance. Source: [DPPO] 5.4."""

REST_FLOOR = 1e-8
"""Added to 1 - p and 1 - q in DPPO's KL, as in verl: a float32 log-prob of 0 stands for any p above 1 - 6e-8."""


@dataclass(frozen=True, slots=True)
class RuleBlock:
    """The valid tokens of a block, bool [b, T], and the log-probs by argument name, float64 [b, T].

    `advantages` is [b], [b, T], or None.
    """

    xp: Arrays
    valid: Array
    logp: dict[str, Array]
    advantages: Array | None

    @classmethod
    def of(cls, inputs: CheckedInputs) -> RuleBlock:
        """Return the tokens of a block."""
        logp = {name: inputs.functions.cast(array, "f8") for name, array in inputs.logprobs.items()}
        return cls(inputs.functions, valid_tokens(inputs), logp, inputs.advantages)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs whose two policies are given."""
        return pairs_of(self.logp)

    def log_ratio(self, pair: Pair) -> Array:
        """Return d, 0 where a token is not valid."""
        numerator, denominator = RATIOS[pair]
        return self.xp.where(self.valid, self.logp[numerator] - self.logp[denominator], 0.0)

    def bounded(self, pair: Pair) -> tuple[Array, Array]:
        """Return the log-probs of numerator and denominator, at most 0, and 0 where a token is not valid."""
        numerator, denominator = (
            self.xp.at_most(self.xp.where(self.valid, self.logp[name], 0.0), 0.0) for name in RATIOS[pair]
        )
        return numerator, denominator


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The effect of one rule on a block, [b, T]: the kept tokens, the weights, and the truncated weights.

    None means: all kept, all weights 1, none truncated.
    """

    kept: Array | None = None
    weight: Array | None = None
    truncated: Array | None = None


def _k1(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    return RuleEffect(kept=_in_bounds(rule, block.log_ratio(pair)))


def _k2(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    d = block.log_ratio(pair)
    return RuleEffect(kept=d * d / 2 <= rule.upper_compared)


def _k3(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    d, xp = block.log_ratio(pair), block.xp
    return RuleEffect(kept=k3(xp, d, xp.expm1(clamp_log_ratio(xp, d))) <= rule.upper_compared)


def _icepop(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    d = block.log_ratio(pair)
    return RuleEffect(kept=_in_bounds(rule, d), weight=_ratio(block.xp, d))


def _tis(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    d = block.log_ratio(pair)
    return RuleEffect(weight=block.xp.at_most(_ratio(block.xp, d), rule.upper), truncated=d > rule.upper_compared)


def _seq_tis(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    """Truncate exp(S), which may overflow to inf."""
    xp = block.xp
    log_ratio = xp.sum(block.log_ratio(pair), -1)[:, None]
    return RuleEffect(weight=xp.at_most(xp.exp(log_ratio), rule.upper), truncated=log_ratio > rule.upper_compared)


def _seq_mis(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    """Keep whole sequences; above `upper`, where exp(S) may overflow, the weight is 0."""
    xp = block.xp
    log_ratio = xp.sum(block.log_ratio(pair), -1)[:, None]
    kept = log_ratio <= rule.upper_compared
    if rule.lower_compared is not None:
        kept = kept & (log_ratio >= rule.lower_compared)
    return RuleEffect(kept=kept, weight=xp.where(kept, xp.exp(log_ratio), 0.0))


def _dppo(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    log_p, log_q = block.bounded(pair)
    return _divergence_effect(rule, block, pair, divergence=block.xp.exp(log_p) - block.xp.exp(log_q))


def _dppo_kl(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    xp, (log_p, log_q) = block.xp, block.bounded(pair)
    p, q = xp.exp(log_p), xp.exp(log_q)
    # Not the binary KL of the columns: that one is a lower bound, which counts an unresolved 1 - q at its smallest.
    kl = q * (log_q - log_p) + (1.0 - q) * xp.log((1.0 - q + REST_FLOOR) / (1.0 - p + REST_FLOOR))
    return _divergence_effect(rule, block, pair, divergence=xp.where(p >= q, kl, -kl))


def _divergence_effect(rule: TokenRule, block: RuleBlock, pair: Pair, *, divergence: Array) -> RuleEffect:
    """Mask tokens whose update would move p further away; a NaN advantage masks.

    Args: divergence: with the sign of p - q.
    """
    if block.advantages is None:
        raise PolicyError(f"{rule.rule} needs advantages, which were not given for this batch")
    advantage = block.advantages[:, None] if block.advantages.ndim == 1 else block.advantages
    kept = ((advantage > 0) & (divergence <= rule.upper_compared)) | (
        (advantage <= 0) & (divergence >= rule.lower_compared)
    )
    d = block.log_ratio(pair)
    weight = block.xp.at_most(_ratio(block.xp, d), DPPO_MAX_RATIO)
    return RuleEffect(kept, weight, truncated=d > math.log(DPPO_MAX_RATIO))


def _m2po(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    d = block.log_ratio(pair)
    return RuleEffect(kept=kept_by_second_moment(block.xp, d * d, valid=block.valid, limit=rule.upper_compared))


def _gspo(_rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    xp = block.xp
    n_tokens = xp.at_least(xp.cast(xp.count(block.valid, -1), "f8"), 1.0)
    mean = xp.sum(block.log_ratio(pair), -1) / n_tokens
    return RuleEffect(weight=_ratio(xp, mean)[:, None])


def _in_bounds(rule: TokenRule, log_ratio: Array) -> Array:
    return (log_ratio >= rule.lower_compared) & (log_ratio <= rule.upper_compared)


def _ratio(xp: Arrays, log_ratio: Array) -> Array:
    return xp.exp(clamp_log_ratio(xp, log_ratio))


_EFFECTS: dict[str, Callable[[TokenRule, RuleBlock, Pair], RuleEffect]] = {
    "token_k1": _k1,
    "token_k2": _k2,
    "token_k3": _k3,
    "icepop": _icepop,
    "tis": _tis,
    "seq_tis": _seq_tis,
    "seq_mis": _seq_mis,
    "dppo": _dppo,
    "dppo_kl": _dppo_kl,
    "m2po": _m2po,
    "cispo": _tis,
    "gspo": _gspo,
}


@dataclass(frozen=True, eq=False)
class TokenDecision:
    """The decision on the tokens of B sequences, in arrays of the columns' kind on the columns' device.

    Fields: mask [B, T] bool: valid and kept by every rule; weights [B, T] float32: 0 where `mask` is unset, 1 without
    a rule that weights; columns: `column_schema.TOKEN_STEMS`, [B], over valid tokens, including rejected sequences;
    layout: the layout of the log-probs.
    """

    mask: Array
    weights: Array
    columns: dict[str, Array]
    layout: InputLayout

    def attached_to(self, columns: Columns) -> Columns:
        """Return the columns of the same sequences together with those of the token rules."""
        return replace(columns, by_name={**columns.by_name, **self.columns})


def apply_token_rules(policy: Policy, **given: Any) -> TokenDecision:
    """Return the decision of a policy's token rules; without rules, valid tokens have weight 1.

    Args: as for `statistics.columns`; the result is padded, and `layout` restores the layout of the log-probs.
    Returns: numpy arrays, or torch tensors on the device of CUDA tensors without a synchronisation.
    Rules do not apply to fewer than two log-probs.
    Errors: ValueError naming the argument and the expected shape; PolicyError if the pair of a rule or the
    advantages that it needs are not given.
    Source: formulas, sections 3 and 6.
    """
    return apply_token_rules_to_inputs(policy, check_inputs(**given))


def apply_token_rules_to_inputs(policy: Policy, inputs: CheckedInputs) -> TokenDecision:
    """Return the decision of a policy's token rules on checked arguments, block by block."""
    with np.errstate(all="ignore"):
        # A rule of the whole batch cannot be applied block by block.
        is_of_batch = any(rule.kind.is_of_batch for rule in policy.tokens)
        blocks = [inputs] if is_of_batch else inputs.blocks(max_tokens=block_tokens(inputs))
        parts = [_decide_block(policy, block) for block in blocks]
    join = inputs.functions.concatenate
    return TokenDecision(
        join([part.mask for part in parts]),
        join([part.weights for part in parts]),
        {name: join([part.columns[name] for part in parts]) for name in parts[0].columns},
        inputs.layout,
    )


def _decide_block(policy: Policy, inputs: CheckedInputs) -> TokenDecision:
    block = RuleBlock.of(inputs)
    xp, kept, truncated = block.xp, block.valid, block.valid & False
    weights = xp.cast(block.valid, "f8")
    for rule in policy.tokens if block.pairs else ():
        pair = rule.resolve(block.pairs)
        if pair is None:
            continue
        effect = _EFFECTS[rule.rule](rule, block, pair)
        kept = kept if effect.kept is None else kept & effect.kept
        weights = weights if effect.weight is None else weights * effect.weight
        truncated = truncated if effect.truncated is None else block.valid & effect.truncated
    weights = xp.where(kept, weights, 0.0)
    found = {
        "n_token_masked": xp.sum(block.valid & ~kept, -1),
        "n_token_truncated": xp.sum(truncated & kept, -1),
        "sum_token_weight": xp.sum(weights, -1),
        "sum_sq_token_weight": xp.sum(weights * weights, -1),
    }
    columns = {name: xp.cast(array, COLUMNS[name].dtype) for name, array in found.items()}
    return TokenDecision(kept, xp.cast(weights, "f4"), columns, inputs.layout)
