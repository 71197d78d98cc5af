"""Reduces the log-probs of [B, T] tokens to columns, one value for each sequence, and a histogram for each pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trmon_client.core.columns.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.large_batches import reduce
from trmon_client.core.reduction.block_reduction import reduce_block
from trmon_client.core.reduction.block_size import block_tokens
from trmon_client.core.reduction.ppo_clipping import DEFAULT_CLIP, ClipRange


def columns(
    *,
    rollout_logprobs: Any = None,
    old_logprobs: Any = None,
    logprobs: Any = None,
    mask: Any = None,
    cu_seqlens: Any = None,
    advantages: Any = None,
    rewards: Any = None,
    group_ids: Any = None,
    versions: Any = None,
    truncated: Any = None,
    trainer_version: int | None = None,
    old_version: int | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Columns:
    """Return the columns of B sequences, with those of each pair whose two log-probs are given.

    Args: log-probs, in nats: [B, T] torch or numpy of any floating dtype, or lists of B 1-D arrays; fewer than two
        give the columns of lengths and labels only.
        mask: in the form of the log-probs, nonzero where a token counts; None, with packed or ragged log-probs: all
        tokens count.
        cu_seqlens: B + 1 offsets of packed sequences; log-probs, mask, and advantages and versions of tokens are then
        [N]. It should be on the host, because a tensor on a device is awaited.
        advantages, versions: [B] or [B, T]; rewards: [B]; group_ids: B integers or any labels.
        truncated: bool or integer [B], not 0 where a response was cut at the length limit.
        trainer_version, old_version: of pi and pi_old; clip_low, clip_high: PPO clips rho to [1 - low, 1 + high].
    Returns: numpy columns, or torch columns on the device of CUDA tensors without another synchronisation.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, sections 1 to 3.
    """
    inputs = check_inputs(
        rollout_logprobs=rollout_logprobs,
        old_logprobs=old_logprobs,
        logprobs=logprobs,
        mask=mask,
        cu_seqlens=cu_seqlens,
        advantages=advantages,
        rewards=rewards,
        group_ids=group_ids,
        versions=versions,
        truncated=truncated,
        trainer_version=trainer_version,
        old_version=old_version,
    )
    clip = ClipRange(_distance("clip_low", clip_low), _distance("clip_high", clip_high))
    return columns_of_inputs(inputs, clip=clip)


def columns_of_inputs(inputs: CheckedInputs, *, clip: ClipRange = DEFAULT_CLIP) -> Columns:
    """Return the columns of checked arguments, reduced block by block to keep temporaries small."""
    reduced = _reduced(inputs, clip=clip)
    return replace(reduced, trainer_version=inputs.trainer_version, old_version=inputs.old_version)


def _reduced(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    if reduce.is_large(inputs):
        return reduce.reduce_large_batch(inputs, clip=clip)
    with np.errstate(all="ignore"):
        blocks = inputs.blocks(max_tokens=block_tokens(inputs))
        return Columns.merge(*(reduce_block(block, clip=clip) for block in blocks))


def _distance(name: str, distance: Any) -> float:
    if isinstance(distance, (int, float)) and distance >= 0:
        return distance
    raise ValueError(f"{name} is {distance!r}; expected a number of 0 or more, the distance of the ratio from 1")
