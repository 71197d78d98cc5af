"""A transfer: tensors of a device on their way to the host, by one copy that nobody waits for until they are needed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trmon_client.core.arrays.backend import Array, is_tensor


class DeviceEvent(Protocol):
    """Something that a device will have done."""

    def synchronize(self) -> None:
        """Return when it is done."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Bytes of the host, uint8 [n], that a device fills until the event."""

    host: Array
    event: DeviceEvent


@dataclass(frozen=True, slots=True)
class TensorBundle:
    """Tensors of one device in one copy: the places of them among the values, their dtypes and shapes."""

    places: tuple[tuple[int, np.dtype[Any], tuple[int, ...]], ...]
    copy: HostCopy


@dataclass(frozen=True, slots=True)
class Transfer:
    """Values of which those that are tensors travel together; begun where they were computed, awaited anywhere."""

    values: tuple[Any, ...]
    """None where a parcel brings the value."""
    parcels: tuple[TensorBundle, ...]

    @classmethod
    def begin(cls, values: Sequence[Any], *, start: Callable[[Array], HostCopy] | None = None) -> Transfer:
        """Start to copy all tensors among the values, of each device at once, on its current stream.

        Args: start: starts the copy of bytes, uint8 [n]; by default from CUDA into pinned memory.
        """
        by_device: dict[Any, list[int]] = {}
        for index, value in enumerate(values):
            if is_tensor(value):
                by_device.setdefault(value.device, []).append(index)
        parcels = tuple(_pack(values, places, start or _to_pinned) for places in by_device.values())
        return cls(tuple(None if is_tensor(value) else value for value in values), parcels)

    def wait(self) -> list[Any]:
        """Return the values with a numpy array for each tensor, once its device has filled it."""
        found = list(self.values)
        for parcel in self.parcels:
            parcel.copy.event.synchronize()
            data, at = parcel.copy.host.numpy(), 0
            for index, dtype, shape in parcel.places:
                end = at + math.prod(shape) * dtype.itemsize
                found[index] = data[at:end].view(dtype).reshape(shape)
                at = end
        return found


def _pack(values: Sequence[Any], places: list[int], start: Callable[[Array], HostCopy]) -> TensorBundle:
    torch = sys.modules["torch"]
    # The widest first, so that every array starts at a multiple of its own width.
    order = sorted(places, key=lambda index: -values[index].itemsize)
    packed = torch.cat([values[index].detach().contiguous().view(-1).view(torch.uint8) for index in order])
    return TensorBundle(
        tuple((index, _dtype(values[index]), tuple(values[index].shape)) for index in order), start(packed)
    )


class _Done:
    def synchronize(self) -> None:
        """Return at once: the host's own copy is no work of a device."""


def _to_pinned(packed: Array) -> HostCopy:
    if not packed.is_cuda:
        return HostCopy(packed, _Done())
    torch = sys.modules["torch"]
    host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True)
    host.copy_(packed, non_blocking=True)
    # A thread that waits for a blocking event sleeps; it would keep a core busy otherwise.
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(packed.device))
    return HostCopy(host, event)


def _dtype(tensor: Array) -> np.dtype[Any]:
    return np.dtype(str(tensor.dtype).removeprefix("torch."))
