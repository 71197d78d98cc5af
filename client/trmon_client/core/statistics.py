"""The sufficient statistics: log-probs of [B, T] tokens in, one value a sequence and one histogram a pair out."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.inputs import POLICIES, Inputs, checked
from trmon_client.core.reduction import reduced

BLOCK_TOKENS = 1 << 14
"""Positions of a block on the CPU: three pairs of float64 take 384 KiB, which the cache keeps."""
SINGLE_BLOCK_TOKENS = 1 << 15
"""The same where terms are float32. Threads would not share the blocks well: they wait for each other at every start of
an operation."""
DEVICE_BLOCK_TOKENS = 1 << 18
"""Positions of a block on a device: enough to hide the launches, little beside the trainer's own memory."""


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
    trainer_version: int | None = None,
    old_version: int | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Columns:
    """Return the columns of B sequences, for every pair whose two log-probs are given.

    Args: log-probs, in nats: [B, T] torch or numpy of any floating dtype, or lists of B 1-D arrays; two at least.
        mask: of the log-probs' form, nonzero where a token counts; None, but not with [B, T]: all count.
        cu_seqlens: B + 1 offsets of packed sequences; then log-probs, mask, and advantages and versions of tokens
        are [N]. On the host: the values of a tensor on a device are waited for, once.
        advantages, versions: [B] or [B, T]; rewards: [B]; group_ids: B integers or any labels.
        trainer_version, old_version: of pi and pi_old; clip_low, clip_high: PPO clips rho to [1 - low, 1 + high].
    Returns: numpy columns, or torch columns on the device where tensors lie on CUDA; then nothing else synchronises.
    Errors: ValueError naming the argument, its shape or dtype and the expected one; values never raise.
    Source: formulas, sections 1 to 3.
    """
    logps = dict(zip(POLICIES, (rollout_logprobs, old_logprobs, logprobs), strict=True))
    labels = {"advantages": advantages, "rewards": rewards, "group_ids": group_ids, "versions": versions}
    inputs = checked(logps, mask=mask, cu_seqlens=cu_seqlens, **labels)
    return replace(
        columns_of(inputs, clip_low=_distance("clip_low", clip_low), clip_high=_distance("clip_high", clip_high)),
        trainer_version=_version("trainer_version", trainer_version),
        old_version=_version("old_version", old_version),
    )


def columns_of(inputs: Inputs, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Columns:
    """Return the columns of checked arguments, reduced block by block so that no temporary is large."""
    part = partial(reduced, clip_low=clip_low, clip_high=clip_high)
    with np.errstate(all="ignore"):
        if isinstance(inputs.mask, np.ndarray) and inputs.mask.size > BLOCK_TOKENS and _is_single(inputs):
            blocks = inputs.blocks(max_tokens=SINGLE_BLOCK_TOKENS)
            return Columns.merge(*(part(block.trimmed(), dtype="f4") for block in blocks))
        return Columns.merge(*(part(block) for block in inputs.blocks(max_tokens=block_tokens(inputs))))


def _is_single(inputs: Inputs) -> bool:
    return all(array.itemsize <= 4 for array in inputs.logprobs.values())


def block_tokens(inputs: Inputs) -> int:
    """Return the positions of a block where these arguments lie."""
    return BLOCK_TOKENS if isinstance(inputs.mask, np.ndarray) else DEVICE_BLOCK_TOKENS


def _distance(name: str, distance: Any) -> float:
    if isinstance(distance, (int, float)) and distance >= 0:
        return distance
    raise ValueError(f"{name} is {distance!r}; expected how far the ratio may go from 1, a number of 0 or more")


def _version(name: str, version: Any) -> int | None:
    try:
        return None if version is None else operator.index(version)
    except TypeError as error:
        raise ValueError(f"{name} is {version!r}; expected an integer") from error
