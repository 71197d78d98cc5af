"""Packed input: the tokens of all sequences one after the other, [N], and where each begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, bring, bring_argument, is_tensor, kind
from trmon_client.core.inputs.ragged import mask_of


def lengths_of(cu_seqlens: Any) -> list[int]:
    """Return the lengths of the B sequences that B + 1 offsets bound.

    Offsets on a device are waited for: their values say how many tokens the longest sequence has.
    Errors: ValueError saying which offset is wrong.
    """
    offsets = bring_argument("cu_seqlens", cu_seqlens, None)
    if offsets.ndim != 1 or not len(offsets) or kind(offsets) != "i":
        raise ValueError(
            f"cu_seqlens has shape {tuple(offsets.shape)} and dtype {offsets.dtype}; "
            "expected integers (B + 1,): where each of B sequences begins, and where the last one ends"
        )
    lengths = np.diff(offsets.astype(np.int64))
    if offsets[0] != 0 or (lengths < 0).any():
        wrong = 0 if offsets[0] != 0 else int(np.argmax(lengths < 0)) + 1
        raise ValueError(f"cu_seqlens[{wrong}] is {offsets[wrong]}; expected offsets that begin at 0 and never fall")
    listed: list[int] = lengths.tolist()
    return listed


def pad(array: Array, *, lengths: list[int]) -> Array:
    """Return packed tokens as [B, T]; behind a sequence's end anything."""
    shape = (len(lengths), max(lengths, default=0))
    if not is_tensor(array):
        padded = np.zeros(shape, array.dtype)
        padded[mask_of(lengths, None)] = array
        return padded
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths), None]
    places = np.minimum(first + np.arange(shape[1]), max(0, len(array) - 1))
    return array[bring(places, array.device)]


def unpad(padded: Array, *, lengths: list[int]) -> Array:
    """Return [B, T, ...] as packed tokens, [N, ...]."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths)]
    positions = np.arange(len(rows)) - np.repeat(first, lengths)
    if not is_tensor(padded):
        return padded[rows, positions]
    return padded[bring(rows, padded.device), bring(positions, padded.device)]
