"""Array functions over numpy and torch, and copies between devices."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""
Device: TypeAlias = Any
"""A CUDA device of torch; None is the host, where arrays are numpy arrays."""

DType = Literal["f8", "f4", "i8"]
"""Little-endian dtypes of columns, in memory and on the wire."""

MAX_CACHED_LAYOUTS = 256
"""The number of column layouts in each cache; reports with the same columns share an entry."""


TORCH_GRAIN = 1 << 15
"""Elements up to which torch starts no threads; waiting threads would occupy the trainer's cores."""
DOT_LENGTH = 1 << 8
"""Elements of the vectors into which rows are split for dot products. BLAS starts threads for long vectors, and float32
loses less in short ones; numpy releases the interpreter lock for more than 500 products at once."""
LONG_TO_COUNT = 1 << 13
"""Elements from which a call of `count_nonzero` for each row is faster than one sum over all rows."""
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
    if array.shape[-1] < LONG_TO_COUNT:
        return np.add.reduce(array.view(np.uint8), -1, np.uint32).astype(np.int64)
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
    positions: Function
    """(n, device): 0 to n - 1, int32."""
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
    at_least=at_least,
    at_most=at_most,
    sum=sum_terms,
    sum_product=sum_product,
    count=count,
    min=np.minimum.reduce,
    max=np.maximum.reduce,
    argmax=np.argmax,
    running_sum=running_sum,
    order=lambda array: np.argsort(array, kind="stable"),
    concatenate=np.concatenate,
    gather=gather,
    empty=empty,
    positions=lambda n, _device: np.arange(n, dtype=np.int32),
    cast=cast,
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
        positions=lambda n, device: torch.arange(n, dtype=torch.int32, device=device),
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


def devices_of(values: Iterable[object]) -> list[Device]:
    """Return the distinct devices of the tensors among the values that stay on their device, in order.

    These are CUDA devices and `meta`, where reading a value is an error; other tensors are copied to the host.
    """
    remote = (value for value in values if is_tensor(value) and (value.is_cuda or value.is_meta))
    return list(dict.fromkeys(value.device for value in remote))


def to_computable(value: Any, device: Device) -> Array:
    """Return a tensor, array, nested list or list of tensors as a detached array on the device.

    Args: device: a torch device; None for numpy, which views a CPU tensor without a copy.
    Errors: ValueError, TypeError or RuntimeError if a list is ragged or does not hold numbers.
    """
    if isinstance(value, (list, tuple)) and value and is_tensor(value[0]):
        value = sys.modules["torch"].stack(list(value))
    if is_tensor(value):
        return _host(value.detach()) if device is None else value.detach().to(device, non_blocking=True)
    value = np.asarray(value)
    if device is None:
        return value
    # torch rejects foreign byte orders and negative strides, and warns about read-only memory.
    native = sys.modules["torch"].from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C"))
    # A copy from unpinned memory may wait for the device.
    return (native.pin_memory() if device.type == "cuda" else native).to(device, non_blocking=True)


def argument_to_computable(name: str, value: Any, device: Device) -> Array:
    """Return an argument as `to_computable` does.

    Errors: ValueError naming the argument if it is not an array, or is a nested or distributed tensor.
    """
    if is_tensor(value) and value.is_nested:
        raise ValueError(f"{name} is nested; expected .to_padded_tensor(0.0) with a mask, or a list of .unbind()")
    if is_tensor(value) and hasattr(value, "full_tensor"):
        raise ValueError(f"{name} is distributed; expected .to_local() of whole sequences, else .full_tensor()")
    try:
        return to_computable(value, device)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} is not an array: {error}; expected numbers in rows of equal length") from error


def _host(tensor: Array) -> Array:
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        # numpy has no bfloat16, which is the upper half of a float32; converting in torch would start threads.
        upper = tensor.view(torch.int16).numpy(force=True).view(np.uint16)
        return np.left_shift(upper, 16, dtype=np.uint32).view(np.float32)
    array = tensor.numpy(force=True)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def dtype_kind(array: Array) -> str:
    """Return the kind of the elements: "b" (bool), "i" (integer), "f" (float) or another numpy kind."""
    if not is_tensor(array):
        return "i" if array.dtype.kind == "u" else array.dtype.kind
    if array.is_complex():
        return "c"
    if array.is_floating_point():
        return "f"
    return "b" if array.dtype == sys.modules["torch"].bool else "i"


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Host memory, uint8 [n], that is filled once the device has reached the event; None: it is filled."""

    host: Array
    event: Any | None


@dataclass(frozen=True, slots=True)
class TensorBundle:
    """The tensors of one device in one copy: their indices among the values, dtypes and shapes."""

    layout: tuple[tuple[int, np.dtype[Any], tuple[int, ...]], ...]
    copy: HostCopy


@dataclass(frozen=True, slots=True)
class Transfer:
    """Values whose tensors are copied together; started in the thread that computed them, awaited in any thread."""

    values: tuple[Any, ...]
    """None where a bundle holds the value."""
    bundles: tuple[TensorBundle, ...]

    @classmethod
    def begin(cls, values: Sequence[Any]) -> Transfer:
        """Start copying the tensors among the values, one copy for each device, on its current stream."""
        by_device: dict[Any, list[int]] = {}
        for index, value in enumerate(values):
            if is_tensor(value):
                by_device.setdefault(value.device, []).append(index)
        bundles = tuple(_pack(values, indices) for indices in by_device.values())
        return cls(tuple(None if is_tensor(value) else value for value in values), bundles)

    def wait(self) -> list[Any]:
        """Wait for the devices and return the values, with a numpy array for each tensor."""
        values = list(self.values)
        for bundle in self.bundles:
            if bundle.copy.event is not None:
                bundle.copy.event.synchronize()
            data, at = bundle.copy.host.numpy(), 0
            for index, dtype, shape in bundle.layout:
                end = at + math.prod(shape) * dtype.itemsize
                values[index] = data[at:end].view(dtype).reshape(shape)
                at = end
        return values


def _pack(values: Sequence[Any], indices: list[int]) -> TensorBundle:
    torch = sys.modules["torch"]
    # The widest dtype first, so that every array is aligned.
    order = sorted(indices, key=lambda index: -values[index].itemsize)
    packed = torch.cat([values[index].detach().contiguous().view(-1).view(torch.uint8) for index in order])
    layout = tuple(
        (index, np.dtype(str(values[index].dtype).removeprefix("torch.")), tuple(values[index].shape))
        for index in order
    )
    return TensorBundle(layout, to_pinned(packed))


def to_pinned(packed: Array) -> HostCopy:
    """Start the copy of bytes, uint8 [n], from CUDA into pinned memory; those of the host need none."""
    if not packed.is_cuda:
        return HostCopy(packed, None)
    torch = sys.modules["torch"]
    host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True)
    host.copy_(packed, non_blocking=True)
    # Waiting for a blocking event sleeps instead of spinning.
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(packed.device))
    return HostCopy(host, event)


@dataclass(frozen=True, slots=True, eq=False)
class RowMatrix(Mapping[str, Array]):
    """A mapping of name to row: `matrices` are numpy [columns, B], one for each dtype; `names` names the rows.

    A row is a view that is created on access.
    """

    matrices: tuple[Array, ...]
    names: tuple[tuple[str, ...], ...]

    def __getitem__(self, name: str) -> Array:
        matrix, row = _positions(self.names)[name]
        values: Array = self.matrices[matrix][row]
        return values

    def __contains__(self, name: object) -> bool:
        return name in _positions(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(_positions(self.names))

    def __len__(self) -> int:
        return len(_positions(self.names))

    def float64(self) -> Array:
        """Return all rows as one matrix, [columns, B] float64."""
        return np.concatenate(self.matrices, dtype=np.float64)

    @classmethod
    def merge(cls, parts: Sequence[RowMatrix]) -> RowMatrix:
        """Return the concatenated rows of parts with the same names."""
        matrices = zip(*(part.matrices for part in parts), strict=True)
        return cls(tuple(np.concatenate(same_dtype, 1) for same_dtype in matrices), parts[0].names)


@lru_cache(MAX_CACHED_LAYOUTS)
def _positions(names: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, int]]:
    """Return the matrix and the row of each column; cached, because all reports of a run have the same columns."""
    return {name: (matrix, row) for matrix, group in enumerate(names) for row, name in enumerate(group)}
