"""Ragged input: one 1-D array a sequence, brought to padded [B, T]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Device, bring, is_tensor


def is_ragged(value: object) -> bool:
    """Return whether a value is a list of sequences rather than an array or a list of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    return not value or getattr(value[0], "ndim", 1 if isinstance(value[0], (list, tuple)) else 0) > 0


def lengths_of(name: str, rows: Sequence[Any]) -> list[int]:
    """Return the length of every sequence.

    Errors: ValueError naming the sequence that is not one-dimensional.
    """
    for index, row in enumerate(rows):
        if isinstance(row, (list, tuple)):
            continue
        shape = tuple(getattr(row, "shape", ()))
        if len(shape) != 1:
            raise ValueError(f"{name}[{index}] has shape {shape}; expected a 1-D array, one number a token")
    return [len(row) for row in rows]


def pad(name: str, rows: Sequence[Any], *, like: tuple[str, list[int]], device: Device) -> Array:
    """Return rows as one array [B, T], zero behind their ends.

    Args: like: the name and lengths of the argument whose sequences these must match.
    Errors: ValueError naming the sequence whose length differs.
    """
    expected, lengths = like
    if len(rows) != len(lengths):
        raise ValueError(f"{name} has {len(rows)} sequences; expected {len(lengths)} like {expected}")
    for index, (found, length) in enumerate(zip(lengths_of(name, rows), lengths, strict=True)):
        if found != length:
            raise ValueError(f"{name}[{index}] has shape ({found},); expected ({length},) like {expected}[{index}]")
    arrays = [bring(row, device) for row in rows]
    shape = (len(rows), max(lengths, default=0))
    if arrays and is_tensor(arrays[0]):
        padded = arrays[0].new_zeros(shape)
    else:
        # An empty list has no dtype of its own: numpy would take it for floats.
        dtypes = [array.dtype for array in arrays if len(array)]
        padded = np.zeros(shape, np.result_type(*dtypes) if dtypes else np.float64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def mask_of(lengths: list[int], device: Device) -> Array:
    """Return the boolean mask [B, T] of the positions before each sequence's end."""
    return bring(np.arange(max(lengths, default=0)) < np.array(lengths, np.int64)[:, None], device)
