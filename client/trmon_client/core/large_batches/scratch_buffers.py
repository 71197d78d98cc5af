"""Reusable memory for the terms of one block at a time."""

from __future__ import annotations

import threading

import numpy as np

from trmon_client.core.arrays.backend import Array

_LOCAL = threading.local()


class ScratchBuffers:
    """The buffers of one thread: allocating memory for every term would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._memory: dict[str, Array] = {}

    @classmethod
    def of_thread(cls, n: int) -> list[ScratchBuffers]:
        """Return n instances that belong to the calling thread, for itself and its helper threads."""
        kept: list[ScratchBuffers] = getattr(_LOCAL, "scratches", [])
        _LOCAL.scratches = kept = kept + [cls() for _ in range(n - len(kept))]
        return kept[:n]

    def buffers(self, dtype: str, n: int, shape: tuple[int, int]) -> Array:
        """Return n contiguous, uninitialised buffers of a shape; calls with the same dtype return the same memory."""
        size = n * shape[0] * shape[1]
        if dtype not in self._memory or len(self._memory[dtype]) < size:
            self._memory[dtype] = np.empty(size, dtype)
        return self._memory[dtype][:size].reshape(n, *shape)
