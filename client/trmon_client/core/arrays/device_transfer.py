"""Transfers: one asynchronous copy of tensors from a device to the host, awaited when the values are needed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trmon_client.core.arrays.backend import Array, is_tensor


class DeviceEvent(Protocol):
    """An event in the stream of a device."""

    def synchronize(self) -> None:
        """Wait until the device has reached the event."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Host memory, uint8 [n], that is filled once the device has reached the event."""

    host: Array
    event: DeviceEvent


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
    def begin(cls, values: Sequence[Any], *, start: Callable[[Array], HostCopy] | None = None) -> Transfer:
        """Start copying the tensors among the values, one copy for each device, on its current stream.

        Args: start: starts the copy of bytes, uint8 [n]; by default from CUDA into pinned memory.
        """
        by_device: dict[Any, list[int]] = {}
        for index, value in enumerate(values):
            if is_tensor(value):
                by_device.setdefault(value.device, []).append(index)
        bundles = tuple(_pack(values, indices, start or _to_pinned) for indices in by_device.values())
        return cls(tuple(None if is_tensor(value) else value for value in values), bundles)

    def wait(self) -> list[Any]:
        """Wait for the devices and return the values, with a numpy array for each tensor."""
        values = list(self.values)
        for bundle in self.bundles:
            bundle.copy.event.synchronize()
            data, at = bundle.copy.host.numpy(), 0
            for index, dtype, shape in bundle.layout:
                end = at + math.prod(shape) * dtype.itemsize
                values[index] = data[at:end].view(dtype).reshape(shape)
                at = end
        return values


def _pack(values: Sequence[Any], indices: list[int], start: Callable[[Array], HostCopy]) -> TensorBundle:
    torch = sys.modules["torch"]
    # The widest dtype first, so that every array is aligned.
    order = sorted(indices, key=lambda index: -values[index].itemsize)
    packed = torch.cat([values[index].detach().contiguous().view(-1).view(torch.uint8) for index in order])
    return TensorBundle(
        tuple((index, _dtype(values[index]), tuple(values[index].shape)) for index in order), start(packed)
    )


class _Done:
    def synchronize(self) -> None:
        """Return at once, because the host made the copy."""


def _to_pinned(packed: Array) -> HostCopy:
    if not packed.is_cuda:
        return HostCopy(packed, _Done())
    torch = sys.modules["torch"]
    host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True)
    host.copy_(packed, non_blocking=True)
    # Waiting for a blocking event sleeps instead of spinning.
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(packed.device))
    return HostCopy(host, event)


def _dtype(tensor: Array) -> np.dtype[Any]:
    return np.dtype(str(tensor.dtype).removeprefix("torch."))
