"""What a policy's token rules make of a batch: which tokens teach and with what weight, and how many do not.

Computed from the log-probs, where they are; the service has only the columns that come of it.
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
    """What became of the tokens of B sequences; arrays are of the columns' kind and on their device.

    Fields: mask [B, T] bool: valid, and kept by every rule; weights [B, T] float32: 0 where `mask` is unset, 1 where
    no rule weighs; columns: `schema.TOKEN_STEMS`, [B], over valid tokens, of sequences that are rejected too;
    layout: of the log-probs.
    """

    mask: Array
    weights: Array
    columns: dict[str, Array]
    layout: InputLayout

    def attached_to(self, columns: Columns) -> Columns:
        """Return the columns of the same sequences with these beside them."""
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
    """Return what a policy's token rules decide; without any, that valid tokens teach with weight 1.

    Args: as `statistics.columns` takes them; what was not padded comes back padded, and `layout` can undo it.
    Returns: numpy, or torch on the device of CUDA tensors; then nothing synchronises.
    Errors: ValueError naming the argument and the expected shape; PolicyError if a rule's pair is not at hand.
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
    """Return what a policy's token rules decide on checked arguments, block by block as the columns are reduced."""
    with np.errstate(all="ignore"):
        parts = [_decided(policy, block) for block in inputs.blocks(max_tokens=block_tokens(inputs))]
    join = inputs.functions.concatenate
    return TokenDecision(
        join([part.mask for part in parts]),
        join([part.weights for part in parts]),
        {name: join([part.columns[name] for part in parts]) for name in parts[0].columns},
        inputs.layout,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """The valid tokens of a block, bool [b, T], and the log-ratios of its pairs, float64, 0 elsewhere."""

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
        above, below = RATIOS[pair]
        return self.xp.where(self.valid, self.logp[above] - self.logp[below], 0.0)


@dataclass(frozen=True, slots=True)
class _Ruling:
    """What one rule makes of a block, [b, T]: where it keeps a token, its weight, and where that was cut.

    None stands for: everywhere, 1, nowhere.
    """

    kept: Array | None = None
    weight: Array | None = None
    cut: Array | None = None


def _decided(policy: Policy, inputs: CheckedInputs) -> TokenDecision:
    block = _Block.of(inputs)
    xp, kept, cut = block.xp, block.valid, block.valid & False
    weights = xp.cast(block.valid, "f8")
    for rule in policy.tokens:
        ruling = _RULINGS[rule.rule](rule, xp, block.log_ratio(rule.resolve(block.pairs)))
        kept = kept if ruling.kept is None else kept & ruling.kept
        weights = weights if ruling.weight is None else weights * ruling.weight
        cut = cut if ruling.cut is None else block.valid & ruling.cut
    weights = xp.where(kept, weights, 0.0)
    found = {
        "n_token_masked": xp.sum(block.valid & ~kept, -1),
        "n_token_truncated": xp.sum(cut & kept, -1),
        "sum_token_weight": xp.sum(weights, -1),
        "sum_sq_token_weight": xp.sum(weights * weights, -1),
    }
    columns = {name: xp.cast(array, COLUMNS[name].dtype) for name, array in found.items()}
    return TokenDecision(kept, xp.cast(weights, "f4"), columns, inputs.layout)


def _k1(rule: TokenRule, _xp: Arrays, d: Array) -> _Ruling:
    return _Ruling(kept=(d >= rule.lower_compared) & (d <= rule.upper_compared))


def _k2(rule: TokenRule, _xp: Arrays, d: Array) -> _Ruling:
    return _Ruling(kept=d * d / 2 <= rule.upper_compared)


def _k3(rule: TokenRule, xp: Arrays, d: Array) -> _Ruling:
    return _Ruling(kept=k3(xp, d, xp.expm1(clamp_log_ratio(xp, d))) <= rule.upper_compared)


def _icepop(rule: TokenRule, xp: Arrays, d: Array) -> _Ruling:
    return _Ruling(kept=_k1(rule, xp, d).kept, weight=xp.exp(clamp_log_ratio(xp, d)))


def _tis(rule: TokenRule, xp: Arrays, d: Array) -> _Ruling:
    return _Ruling(weight=xp.at_most(xp.exp(clamp_log_ratio(xp, d)), rule.upper), cut=d > rule.upper_compared)


def _seq_tis(rule: TokenRule, xp: Arrays, d: Array) -> _Ruling:
    """exp(S) may overflow to inf, which the bound cuts."""
    log_ratio = xp.sum(d, -1)[:, None]
    return _Ruling(weight=xp.at_most(xp.exp(log_ratio), rule.upper), cut=log_ratio > rule.upper_compared)


_RULINGS: dict[str, Callable[[TokenRule, Arrays, Array], _Ruling]] = {
    "token_k1": _k1,
    "token_k2": _k2,
    "token_k3": _k3,
    "icepop": _icepop,
    "tis": _tis,
    "seq_tis": _seq_tis,
}
