"""Packed input: the concatenated tokens of all sequences, [N], with the offsets of the sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, is_tensor
from trmon_client.core.arrays.conversion import argument_to_computable, dtype_kind, to_computable
from trmon_client.core.inputs.ragged import row_mask


def lengths_of(cu_seqlens: Any) -> list[int]:
    """Return the lengths of the B sequences given by B + 1 offsets.

    Offsets on a device are awaited, because the length of the longest sequence is needed.
    Errors: ValueError naming the invalid offset.
    """
    offsets = argument_to_computable("cu_seqlens", cu_seqlens, None)
    if offsets.ndim != 1 or not len(offsets) or dtype_kind(offsets) != "i":
        raise ValueError(
            f"cu_seqlens has shape {tuple(offsets.shape)} and dtype {offsets.dtype}; "
            "expected integers (B + 1,), the starts of B sequences and the end of the last one"
        )
    lengths = np.diff(offsets.astype(np.int64))
    if offsets[0] != 0 or (lengths < 0).any():
        wrong = 0 if offsets[0] != 0 else int(np.argmax(lengths < 0)) + 1
        raise ValueError(
            f"cu_seqlens[{wrong}] is {offsets[wrong]}; expected offsets that start at 0 and never decrease"
        )
    as_list: list[int] = lengths.tolist()
    return as_list


def pad_packed(array: Array, *, lengths: list[int]) -> Array:
    """Return packed tokens as [B, T]; values after the end of a sequence are undefined."""
    shape = (len(lengths), max(lengths, default=0))
    if not is_tensor(array):
        padded = np.zeros(shape, array.dtype)
        padded[row_mask(lengths, None)] = array
        return padded
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths), None]
    indices = np.minimum(first + np.arange(shape[1]), max(0, len(array) - 1))
    return array[to_computable(indices, array.device)]


def unpad_packed(padded: Array, *, lengths: list[int]) -> Array:
    """Return [B, T, ...] as packed tokens, [N, ...]."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths)]
    positions = np.arange(len(rows)) - np.repeat(first, lengths)
    if not is_tensor(padded):
        return padded[rows, positions]
    return padded[to_computable(rows, padded.device), to_computable(positions, padded.device)]
