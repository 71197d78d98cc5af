"""The effect of each token rule on the tokens of a block: which ones it keeps, and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trmon_client.core.arrays.backend import Array, Arrays
from trmon_client.core.columns.schema import Pair
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.token_validity import valid_tokens
from trmon_client.core.policies.second_moment import kept_by_second_moment
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_rule import TokenRule
from trmon_client.core.reduction.kl_estimators import RATIOS, clamp_log_ratio, k3, pairs_of

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

    def token_advantages(self, rule: str) -> Array:
        """Return advantages that broadcast to [b, T]. Errors: PolicyError naming the argument if it is missing."""
        if self.advantages is None:
            raise PolicyError(f"{rule} needs advantages, which were not given for this batch")
        return self.advantages[:, None] if self.advantages.ndim == 1 else self.advantages


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The effect of one rule on a block, [b, T]: the kept tokens, the weights, and the truncated weights.

    None means: all kept, all weights 1, none truncated.
    """

    kept: Array | None = None
    weight: Array | None = None
    truncated: Array | None = None


def effect_of(rule: TokenRule, block: RuleBlock, pair: Pair) -> RuleEffect:
    """Return the effect of a rule on a block. Source: formulas, section 6."""
    return _EFFECTS[rule.rule](rule, block, pair)


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
    advantage = block.token_advantages(rule.rule)
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
