"""The array functions for numpy, tuned for long rows."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from trmon_client.core.arrays.dtypes import Array, Device, DType

TORCH_GRAIN = 1 << 15
"""Elements up to which torch starts no threads; waiting threads would occupy the trainer's cores."""
DOT_LENGTH = 1 << 8
"""Elements of the vectors into which rows are split for dot products. BLAS starts threads for long vectors, and float32
loses less in short ones; numpy releases the interpreter lock for more than 500 products at once."""
SMALL_SIZE = 1 << 13
"""Elements for which calling a function takes as long as its work."""


# For long rows the obvious numpy functions are slow: sum, maximum with a scalar and count take 2 to 8 times as long as
# BLAS, `clip` and `count_nonzero`, and cumsum takes 4 times as long as torch's.
def sum_terms(array: Array, axis: int) -> Array:
    """Return the sums over an axis; float rows are summed by dot products."""
    if axis == -1 and array.dtype.kind == "f":
        return _sum_of_products(array, None)
    return np.add.reduce(array, axis)


def sum_product(left: Array, right: Array, axis: int) -> Array:
    """Return the sums of left * right over an axis."""
    return _sum_of_products(left, right) if axis == -1 else np.add.reduce(left * right, axis)


def _sum_of_products(left: Array, right: Array | None) -> Array:
    """Return the sums of left * right over the last axis, or of left alone."""
    n = left.shape[-1]
    end = n - n % DOT_LENGTH
    if not end or left.size <= SMALL_SIZE:
        return _product(left, _ones(n, left.dtype) if right is None else right)
    split = (*left.shape[:-1], end // DOT_LENGTH, DOT_LENGTH)
    factors = _ones(DOT_LENGTH, left.dtype) if right is None else right[..., :end].reshape(split)
    total = np.add.reduce(_product(left[..., :end].reshape(split), factors), -1, "f8")
    return total if end == n else total + _sum_of_products(left[..., end:], None if right is None else right[..., end:])


@lru_cache(maxsize=DOT_LENGTH)
def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(n, dtype)


def _product(left: Array, right: Array) -> Array:
    # Vector times vector, not matrix times vector: BLAS then sums shorter parts, which is more accurate.
    return (left[..., None, :] @ right[..., :, None])[..., 0, 0]


def count(array: Array, axis: int) -> Array:
    """Return the number of true elements over an axis."""
    if axis != -1:
        return np.add.reduce(array, axis)
    if not array.any():
        return np.zeros(array.shape[:-1], np.int64)
    rows = array.reshape(-1, array.shape[-1])
    return np.array([np.count_nonzero(row) for row in rows], np.int64).reshape(array.shape[:-1])


def running_sum(array: Array, axis: int) -> Array:
    """Return the running sums over an axis, summed in float64."""
    return running_sums(array, out=np.empty_like(array)) if axis == -1 else np.add.accumulate(array, axis, "f8")


def running_sums(array: Array, *, out: Array) -> Array:
    """Return the running sums of the rows of a numpy array in `out`, summed in float64; both arrays are contiguous."""
    torch = sys.modules.get("torch")
    rows, total = (each.reshape(-1, each.shape[-1]) for each in (array, out))
    if torch is None:
        total[...] = np.add.accumulate(rows, -1, "f8")
        return out
    stride = max(1, TORCH_GRAIN // rows.shape[1])
    for start in range(0, len(rows), stride):
        block = slice(start, start + stride)
        torch.cumsum(torch.from_numpy(rows[block]), -1, out=torch.from_numpy(total[block]))
    return out


def at_least(array: Array, bound: float) -> Array:
    """Return the elements, at least the bound; NaN propagates."""
    return np.clip(array, bound, np.inf) if array.size > SMALL_SIZE else np.maximum(array, bound)


def at_most(array: Array, bound: float) -> Array:
    """Return the elements, at most the bound; NaN propagates."""
    return np.clip(array, -np.inf, bound) if array.size > SMALL_SIZE else np.minimum(array, bound)


def gather(array: Array, indices: list[int]) -> Array:
    """Return the rows of the first axis at the indices; a single row is a view."""
    return array.take(indices, 0) if len(indices) > 1 else array[indices[0] : indices[0] + 1]


def cast(array: Array, dtype: DType) -> Array:
    """Return the array in a dtype, without a copy if it has it already."""
    return array.astype(dtype, copy=False)


def empty(shape: tuple[int, ...], dtype: DType, _device: Device) -> Array:
    """Return an uninitialised array on the host."""
    return np.empty(shape, dtype)
