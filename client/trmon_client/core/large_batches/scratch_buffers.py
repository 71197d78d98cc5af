"""Memory for the terms of one block at a time, which every block finds where the last one left it."""

from __future__ import annotations

import threading

import numpy as np

from trmon_client.core.arrays.backend import Array

_LOCAL = threading.local()


class ScratchBuffers:
    """The buffers of one thread: to fetch new memory for every term would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._memory: dict[str, Array] = {}

    @classmethod
    def mine(cls, n: int) -> list[ScratchBuffers]:
        """Return n of the calling thread's own, for it and its helpers."""
        kept: list[ScratchBuffers] = getattr(_LOCAL, "scratches", [])
        _LOCAL.scratches = kept = kept + [cls() for _ in range(n - len(kept))]
        return kept[:n]

    def buffers(self, dtype: str, n: int, shape: tuple[int, int]) -> Array:
        """Return n buffers of a shape, contiguous, of no particular value; those of a dtype are always the same."""
        size = n * shape[0] * shape[1]
        if dtype not in self._memory or len(self._memory[dtype]) < size:
            self._memory[dtype] = np.empty(size, dtype)
        return self._memory[dtype][:size].reshape(n, *shape)
