"""Reduces the log-probs of [B, T] tokens to columns, one value for each sequence, and a histogram for each pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import CheckedInputs, GivenBatch
from trmon_client.core.kernel_launches import imported
from trmon_client.core.large_batches import reduction
from trmon_client.core.reduction.repetition import repetition_columns
from trmon_client.core.reduction.sequences import block_tokens, reduce_block, reference_columns
from trmon_client.core.reduction.token_terms import DEFAULT_CLIP, ClipRange
from trmon_client.core.reduction.turns import turn_columns

ColumnsBackend = Literal["blocks", "triton"]
"""The implementation of the columns: numpy or torch block by block, or one Triton kernel on device tensors."""


def columns(
    *,
    rollout_logprobs: Any = None,
    old_logprobs: Any = None,
    logprobs: Any = None,
    ref_logprobs: Any = None,
    mask: Any = None,
    cu_seqlens: Any = None,
    advantages: Any = None,
    rewards: Any = None,
    group_ids: Any = None,
    versions: Any = None,
    truncated: Any = None,
    finish_reasons: Any = None,
    token_ids: Any = None,
    trainer_version: int | None = None,
    old_version: int | None = None,
    turn_ids: Any = None,
    turn_offsets: Any = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_dual: float = 3.0,
    backend: ColumnsBackend = "blocks",
) -> Columns:
    """Return the columns of B sequences, with those of each pair whose two log-probs are given.

    Args: log-probs, in nats: [B, T] torch or numpy of any floating dtype, or lists of B 1-D arrays; fewer than two
        give the columns of lengths and labels only.
        ref_logprobs: of a frozen reference policy, shaped like the log-probs, for the KL to it.
        mask: in the form of the log-probs, nonzero where a token counts; None, with packed or ragged log-probs: all
        tokens count.
        cu_seqlens: B + 1 offsets of packed sequences; log-probs, mask, and advantages and versions of tokens are then
        [N]. It should be on the host, because a tensor on a device is awaited.
        advantages, versions: [B] or [B, T]; rewards: [B]; group_ids: B integers or any labels.
        truncated: bool or integer [B], not 0 where a response was cut at the length limit.
        finish_reasons: B texts or None, why the engine ended each response: stop, length, abort or any other.
        token_ids: integers in the form of the log-probs, for the share of repeated 4-grams.
        turn_ids: integers in the form of the log-probs, the turn of each token in its sequence, from 0; negative: none.
        turn_offsets: B lists of the positions at which turns start, in place of turn_ids.
        trainer_version, old_version: of pi and pi_old; clip_low, clip_high: PPO clips rho to [1 - low, 1 + high];
        clip_dual: dual clip bounds the loss of A < 0 from this rho on, above 1.
        backend: "triton" takes CUDA tensors, and reads each token of two or three policies once; ref_logprobs,
        token_ids and turns stay with torch.
    Returns: numpy columns, or torch columns on the device of CUDA tensors without another synchronisation.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, sections 1 to 3.
    """
    inputs = GivenBatch.of(locals()).checked()
    if backend not in get_args(ColumnsBackend):
        raise ValueError(f"backend is {backend!r}; expected 'blocks' or 'triton'")
    if not clip_dual > 1:
        raise ValueError(f"clip_dual is {clip_dual!r}; expected a number above 1, the largest ratio of dual clip")
    clip = ClipRange(_distance("clip_low", clip_low), _distance("clip_high", clip_high), float(clip_dual))
    return columns_of_inputs(inputs, clip=clip, backend=backend)


def columns_of_inputs(
    inputs: CheckedInputs, *, clip: ClipRange = DEFAULT_CLIP, backend: ColumnsBackend = "blocks"
) -> Columns:
    """Return the columns of checked arguments, reduced block by block to keep temporaries small."""
    turns = turn_columns(inputs)
    repeated = {} if inputs.token_ids is None else repetition_columns(inputs.token_ids, inputs.mask)
    if turns is not None or repeated:
        # They have passes of their own: the other reductions need not split their ids into blocks.
        inputs = replace(inputs, turns=None, token_ids=None)
    reduced = _reduced(inputs, clip=clip, backend=backend)
    by_name = {**reduced.by_name, **repeated} if repeated else reduced.by_name
    if inputs.ref_logprobs is not None and inputs.logprobs:
        by_name = {**by_name, **reference_columns(inputs)}
    return replace(
        reduced, by_name=by_name, trainer_version=inputs.trainer_version, old_version=inputs.old_version, turns=turns
    )


def _reduced(inputs: CheckedInputs, *, clip: ClipRange, backend: ColumnsBackend) -> Columns:
    if backend == "triton" and len(inputs.logprobs) > 1:
        found: Columns = imported("trmon_client.core.triton_columns.reduce").reduce_on_device(inputs, clip=clip)
        return found
    if reduction.is_large(inputs):
        return reduction.reduce_large_batch(inputs, clip=clip)
    with np.errstate(all="ignore"):
        blocks = inputs.blocks(max_tokens=block_tokens(inputs))
        return Columns.merge(*(reduce_block(block, clip=clip) for block in blocks))


def _distance(name: str, distance: Any) -> float:
    if isinstance(distance, (int, float)) and distance >= 0:
        return distance
    raise ValueError(f"{name} is {distance!r}; expected a number of 0 or more, the distance of the ratio from 1")
