"""Applies the token rules of a policy to a batch: the mask and weight of each token, and the columns that count them.

This needs the log-probs, so it runs in the trainer; the service receives only the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.rule_effects import RuleBlock, effect_of
from trmon_client.core.reduction.block_size import block_tokens


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
    advantages: Any = None,
) -> TokenDecision:
    """Return the decision of a policy's token rules; without rules, valid tokens have weight 1.

    Args: as for `statistics.columns`; the result is padded, and `layout` restores the layout of the log-probs.
    Returns: numpy arrays, or torch tensors on the device of CUDA tensors without a synchronisation.
    Rules do not apply to fewer than two log-probs.
    Errors: ValueError naming the argument and the expected shape; PolicyError if the pair of a rule or the
    advantages that it needs are not given.
    Source: formulas, sections 3 and 6.
    """
    inputs = check_inputs(
        rollout_logprobs=rollout_logprobs,
        old_logprobs=old_logprobs,
        logprobs=logprobs,
        mask=mask,
        cu_seqlens=cu_seqlens,
        advantages=advantages,
    )
    return apply_token_rules_to_inputs(policy, inputs)


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
        effect = effect_of(rule, block, pair)
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
