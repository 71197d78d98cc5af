"""Converts tensors, arrays and lists to arrays of one device."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor


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
