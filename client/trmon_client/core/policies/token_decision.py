"""Applies the token rules of a policy to a batch: the mask and weight of each token, and the columns that count them.

This needs the log-probs, so it runs in the trainer; the service receives only the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, Pair
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.inputs.token_validity import valid_tokens
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.token_rule import TokenRule
from trmon_client.core.reduction.block_size import block_tokens
from trmon_client.core.reduction.kl_estimators import RATIOS, clamp_log_ratio, k3, pairs_of


@dataclass(frozen=True, eq=False)
class TokenDecision:
    """The decision on the tokens of B sequences, in arrays of the columns' kind on the columns' device.

    Fields: mask [B, T] bool: valid and kept by every rule; weights [B, T] float32: 0 where `mask` is unset, 1 without
    a rule that weights; columns: `schema.TOKEN_STEMS`, [B], over valid tokens, including rejected sequences;
    layout: the layout of the log-probs.
    """

    mask: Array
    weights: Array
    columns: dict[str, Array]
    layout: InputLayout

    def attached_to(self, columns: Columns) -> Columns:
        """Return the columns of the same sequences together with those of the token rules."""
        return replace(columns, by_name={**columns.by_name, **self.columns})


def apply_token_rules(
    policy: Policy,
    *,
    rollout_logprobs: Any = None,
    old_logprobs: Any = None,
    logprobs: Any = None,
    mask: Any = None,
    cu_seqlens: Any = None,
) -> TokenDecision:
    """Return the decision of a policy's token rules; without rules, valid tokens have weight 1.

    Args: as for `statistics.columns`; the result is padded, and `layout` restores the layout of the log-probs.
    Returns: numpy arrays, or torch tensors on the device of CUDA tensors without a synchronisation.
    Rules do not apply to fewer than two log-probs.
    Errors: ValueError naming the argument and the expected shape; PolicyError if the pair of a rule is not available.
    Source: formulas, section 6.
    """
    inputs = check_inputs(
        rollout_logprobs=rollout_logprobs,
        old_logprobs=old_logprobs,
        logprobs=logprobs,
        mask=mask,
        cu_seqlens=cu_seqlens,
    )
    return apply_token_rules_to_inputs(policy, inputs)


def apply_token_rules_to_inputs(policy: Policy, inputs: CheckedInputs) -> TokenDecision:
    """Return the decision of a policy's token rules on checked arguments, block by block."""
    with np.errstate(all="ignore"):
        parts = [_decide_block(policy, block) for block in inputs.blocks(max_tokens=block_tokens(inputs))]
    join = inputs.functions.concatenate
    return TokenDecision(
        join([part.mask for part in parts]),
        join([part.weights for part in parts]),
        {name: join([part.columns[name] for part in parts]) for name in parts[0].columns},
        inputs.layout,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """The valid tokens of a block, bool [b, T], and the log-probs by argument name, float64 [b, T]."""

    xp: Arrays
    valid: Array
    logp: dict[str, Array]

    @classmethod
    def of(cls, inputs: CheckedInputs) -> _Block:
        logp = {name: inputs.functions.cast(array, "f8") for name, array in inputs.logprobs.items()}
        return cls(inputs.functions, valid_tokens(inputs), logp)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return pairs_of(self.logp)

    def log_ratio(self, pair: Pair) -> Array:
        numerator, denominator = RATIOS[pair]
        return self.xp.where(self.valid, self.logp[numerator] - self.logp[denominator], 0.0)


@dataclass(frozen=True, slots=True)
class _RuleEffect:
    """The effect of one rule on a block, [b, T]: the kept tokens, the weights, and the truncated weights.

    None means: all kept, all weights 1, none truncated.
    """

    kept: Array | None = None
    weight: Array | None = None
    truncated: Array | None = None


def _decide_block(policy: Policy, inputs: CheckedInputs) -> TokenDecision:
    block = _Block.of(inputs)
    xp, kept, truncated = block.xp, block.valid, block.valid & False
    weights = xp.cast(block.valid, "f8")
    for rule in policy.tokens if block.pairs else ():
        pair = rule.resolve(block.pairs)
        if pair is None:
            continue
        effect = _RULE_FUNCTIONS[rule.rule](rule, xp, block.log_ratio(pair))
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


def _k1(rule: TokenRule, _xp: Arrays, d: Array) -> _RuleEffect:
    return _RuleEffect(kept=(d >= rule.lower_compared) & (d <= rule.upper_compared))


def _k2(rule: TokenRule, _xp: Arrays, d: Array) -> _RuleEffect:
    return _RuleEffect(kept=d * d / 2 <= rule.upper_compared)


def _k3(rule: TokenRule, xp: Arrays, d: Array) -> _RuleEffect:
    return _RuleEffect(kept=k3(xp, d, xp.expm1(clamp_log_ratio(xp, d))) <= rule.upper_compared)


def _icepop(rule: TokenRule, xp: Arrays, d: Array) -> _RuleEffect:
    return _RuleEffect(kept=_k1(rule, xp, d).kept, weight=xp.exp(clamp_log_ratio(xp, d)))


def _tis(rule: TokenRule, xp: Arrays, d: Array) -> _RuleEffect:
    return _RuleEffect(weight=xp.at_most(xp.exp(clamp_log_ratio(xp, d)), rule.upper), truncated=d > rule.upper_compared)


def _seq_tis(rule: TokenRule, xp: Arrays, d: Array) -> _RuleEffect:
    """Truncate exp(S), which may overflow to inf."""
    log_ratio = xp.sum(d, -1)[:, None]
    return _RuleEffect(weight=xp.at_most(xp.exp(log_ratio), rule.upper), truncated=log_ratio > rule.upper_compared)


def _seq_mis(rule: TokenRule, xp: Arrays, d: Array) -> _RuleEffect:
    """Keep whole sequences; above `upper`, where exp(S) may overflow, the weight is 0."""
    log_ratio = xp.sum(d, -1)[:, None]
    kept = log_ratio <= rule.upper_compared
    return _RuleEffect(kept=kept, weight=xp.where(kept, xp.exp(log_ratio), 0.0))


_RULE_FUNCTIONS: dict[str, Callable[[TokenRule, Arrays, Array], _RuleEffect]] = {
    "token_k1": _k1,
    "token_k2": _k2,
    "token_k3": _k3,
    "icepop": _icepop,
    "tis": _tis,
    "seq_tis": _seq_tis,
    "seq_mis": _seq_mis,
}
