"""Packed input: the tokens of all sequences one after the other, [N], and where each begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, argument_to_computable, dtype_kind, is_tensor, to_computable
from trmon_client.core.inputs.ragged import row_mask


def lengths_of(cu_seqlens: Any) -> list[int]:
    """Return the lengths of the B sequences that B + 1 offsets bound.

    Offsets on a device are waited for: their values say how many tokens the longest sequence has.
    Errors: ValueError saying which offset is wrong.
    """
    offsets = argument_to_computable("cu_seqlens", cu_seqlens, None)
    if offsets.ndim != 1 or not len(offsets) or dtype_kind(offsets) != "i":
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


def pad_packed(array: Array, *, lengths: list[int]) -> Array:
    """Return packed tokens as [B, T]; behind a sequence's end anything."""
    shape = (len(lengths), max(lengths, default=0))
    if not is_tensor(array):
        padded = np.zeros(shape, array.dtype)
        padded[row_mask(lengths, None)] = array
        return padded
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths), None]
    places = np.minimum(first + np.arange(shape[1]), max(0, len(array) - 1))
    return array[to_computable(places, array.device)]


def unpad_packed(padded: Array, *, lengths: list[int]) -> Array:
    """Return [B, T, ...] as packed tokens, [N, ...]."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths)]
    positions = np.arange(len(rows)) - np.repeat(first, lengths)
    if not is_tensor(padded):
        return padded[rows, positions]
    return padded[to_computable(rows, padded.device), to_computable(positions, padded.device)]
