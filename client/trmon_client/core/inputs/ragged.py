"""Ragged input: one 1-D array for each sequence, padded to [B, T]."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor
from trmon_client.core.arrays.conversion import argument_to_computable, to_computable


def is_ragged(value: object) -> bool:
    """Return whether a value is a list of sequences rather than an array or a list of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    return not value or getattr(value[0], "ndim", 1 if isinstance(value[0], (list, tuple)) else 0) > 0


def to_rows(name: str, rows: Sequence[Any], device: Device) -> list[Array]:
    """Return each sequence as a 1-D array on the device.

    Errors: ValueError naming the sequence that is not one-dimensional.
    """
    arrays = [argument_to_computable(f"{name}[{index}]", row, device) for index, row in enumerate(rows)]
    for index, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(
                f"{name}[{index}] has shape {tuple(array.shape)}; expected a 1-D array, one number for each token"
            )
    return arrays


def pad_rows(name: str, rows: list[Array], *, like: tuple[str, list[int]]) -> Array:
    """Return rows as one array [B, T], with zeros after the end of each row.

    Args: like: the name and lengths of the argument whose sequences these must match.
    Errors: ValueError naming the sequence whose length differs.
    """
    expected, lengths = like
    if len(rows) != len(lengths):
        raise ValueError(f"{name} has {len(rows)} sequences; expected {len(lengths)} like {expected}")
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if len(row) != length:
            raise ValueError(f"{name}[{index}] has shape ({len(row)},); expected ({length},) like {expected}[{index}]")
    padded = _zeros((len(rows), max(lengths, default=0)), rows)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _zeros(shape: tuple[int, int], rows: list[Array]) -> Array:
    """Return zeros of the dtype that can hold every row; empty rows are ignored, because an empty list has no dtype."""
    if not rows:
        return np.zeros(shape)
    dtypes = [row.dtype for row in rows if len(row)] or [rows[0].dtype]
    if is_tensor(rows[0]):
        return rows[0].new_zeros(shape, dtype=reduce(sys.modules["torch"].promote_types, dtypes))
    return np.zeros(shape, np.result_type(*dtypes))


def row_mask(lengths: list[int], device: Device) -> Array:
    """Return the boolean mask [B, T] of the positions before the end of each sequence."""
    return to_computable(np.arange(max(lengths, default=0)) < np.array(lengths, np.int64)[:, None], device)
