"""Memory for the terms of one block at a time, which every block finds in the cache where the last one left it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array

N_POLICIES = 3
FLOAT32 = ("d", "weight", "away", "single", "spare")
FLOAT64 = ("exact_d", "dev", "mismatch_dev", "rest", "wide")

_LOCAL = threading.local()


@dataclass(frozen=True, slots=True)
class Buffers:
    """[rows, horizon] each, of no particular value, under the names of what lies in them longest.

    Those of FLOAT32 and FLOAT64 have that dtype.
    """

    logp: Array
    """float32 [policies, ...]"""
    d: Array
    weight: Array
    away: Array
    single: Array
    spare: Array
    p: Array
    """float64 [policies, ...]"""
    exact_d: Array
    dev: Array
    mismatch_dev: Array
    rest: Array
    wide: Array
    bits: Array
    """int32"""
    flags: Array
    """bool"""


class Scratch:
    """The buffers of one thread: to fetch new memory for every term would cost as much as the arithmetic."""

    def __init__(self, n_tokens: int) -> None:
        self.n_tokens = n_tokens
        self._memories = (
            np.empty((N_POLICIES + len(FLOAT32), n_tokens), np.float32),
            np.empty((N_POLICIES + len(FLOAT64), n_tokens), np.float64),
            np.empty((1, n_tokens), np.int32),
            np.empty((1, n_tokens), np.bool_),
        )

    @classmethod
    def mine(cls, n_tokens: int) -> Scratch:
        """Return the calling thread's own, of at least so many tokens."""
        found: Scratch | None = getattr(_LOCAL, "scratch", None)
        if found is None or found.n_tokens < n_tokens:
            found = _LOCAL.scratch = cls(n_tokens)
        return found

    def shaped(self, shape: tuple[int, int]) -> Buffers:
        """Return the buffers of a block of this shape."""
        size = shape[0] * shape[1]
        float32, float64, bits, flags = (memory[:, :size].reshape(-1, *shape) for memory in self._memories)
        named = dict(zip((*FLOAT32, *FLOAT64), (*float32[N_POLICIES:], *float64[N_POLICIES:]), strict=True))
        return Buffers(logp=float32[:N_POLICIES], p=float64[:N_POLICIES], bits=bits[0], flags=flags[0], **named)
