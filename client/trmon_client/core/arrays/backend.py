"""The array functions of the core for numpy and torch; torch is used only if the caller has imported it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from trmon_client.core.arrays import numpy_functions
from trmon_client.core.arrays.dtypes import Array as Array
from trmon_client.core.arrays.dtypes import Device as Device

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Arrays:
    """Functions that differ between numpy and torch; reductions take (array, axis)."""

    abs: Function
    exp: Function
    expm1: Function
    log: Function
    where: Function
    at_least: Function
    at_most: Function
    sum: Function
    sum_product: Function
    """(array, array, axis)"""
    count: Function
    """(booleans, axis)"""
    min: Function
    max: Function
    argmax: Function
    running_sum: Function
    order: Function
    """(array): the indices that sort a 1-D array; equal elements keep their order."""
    concatenate: Function
    gather: Function
    """(array, indices): the rows of the first axis at the indices."""
    empty: Function
    """(shape, dtype, device)"""
    cast: Function
    """(array, dtype)"""
    copied: Function
    """(array, dtype)"""


NUMPY = Arrays(
    abs=np.abs,
    exp=np.exp,
    expm1=np.expm1,
    log=np.log,
    where=np.where,
    at_least=numpy_functions.at_least,
    at_most=numpy_functions.at_most,
    sum=numpy_functions.sum_terms,
    sum_product=numpy_functions.sum_product,
    count=numpy_functions.count,
    min=np.minimum.reduce,
    max=np.maximum.reduce,
    argmax=np.argmax,
    running_sum=numpy_functions.running_sum,
    order=lambda array: np.argsort(array, kind="stable"),
    concatenate=np.concatenate,
    gather=numpy_functions.gather,
    empty=numpy_functions.empty,
    cast=numpy_functions.cast,
    copied=lambda array, dtype: array.astype(dtype),
)


@cache
def torch_arrays() -> Arrays:
    """Return the functions for torch, which the caller has already imported."""
    import torch

    dtypes = {"f8": torch.float64, "f4": torch.float32, "i8": torch.int64}

    def running_sum(array: Array, axis: int) -> Array:
        # torch.cumsum raises on CUDA under deterministic algorithms, so add with doubling strides.
        total, stride = array.movedim(axis, -1).clone(), 1
        while stride < total.shape[-1]:
            total[..., stride:] = total[..., stride:] + total[..., :-stride]
            stride *= 2
        return total.movedim(-1, axis)

    return Arrays(
        abs=torch.abs,
        exp=torch.exp,
        expm1=torch.expm1,
        log=torch.log,
        where=torch.where,
        at_least=torch.clamp_min,
        at_most=torch.clamp_max,
        sum=torch.sum,
        sum_product=lambda left, right, axis: torch.sum(left * right, axis),
        count=torch.sum,
        min=torch.amin,
        max=torch.amax,
        argmax=torch.argmax,
        running_sum=running_sum,
        order=lambda array: torch.argsort(array, stable=True),
        concatenate=torch.cat,
        gather=lambda array, indices: torch.stack([array[index] for index in indices]),
        empty=lambda shape, dtype, device: torch.empty(shape, dtype=dtypes[dtype], device=device),
        cast=lambda array, dtype: array.to(dtypes[dtype]),
        copied=lambda array, dtype: array.to(dtypes[dtype], copy=True),
    )


def functions_of(array: Array) -> Arrays:
    """Return the functions for the kind of an array."""
    return torch_arrays() if is_tensor(array) else NUMPY


def is_tensor(value: object) -> TypeGuard[Any]:
    """Return whether a value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def n_threads() -> int:
    """Return the number of threads that the trainer allows a torch operation; 1 without torch."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())
