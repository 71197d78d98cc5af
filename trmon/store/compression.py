"""Numbers made small: byte-shuffled, then zstd."""

from __future__ import annotations

from collections.abc import Sequence
from threading import local
from typing import Any

import numpy as np
import zstandard

from trmon_client.core.schema import DType

LEVEL = 3
"""Noise in the mantissas is most of the data: level 6 gains 1% of the raw size and takes three times as long."""


def shuffled(arrays: Sequence[Any], dtype: DType) -> bytes:
    """Return arrays of one dtype, one after the other, as planes: all first bytes, then all second ones."""
    if not arrays:
        return b""
    flat = np.concatenate(arrays).astype(f"<{dtype}", copy=False)
    return flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()


def unshuffled(data: bytes, *, dtype: DType, shape: tuple[int, int], offset: int = 0) -> Any:
    """Return the [rows, n] numbers whose planes begin at an offset."""
    size = int(dtype[1])
    planes = np.frombuffer(data, np.uint8, shape[0] * shape[1] * size, offset).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(f"<{dtype}").reshape(shape)


def compressed(data: bytes) -> bytes:
    """Return bytes as one checked zstd frame."""
    return _contexts.compressor.compress(data)


def decompressed(data: bytes) -> bytes:
    """Return the bytes of a frame. Errors: zstandard.ZstdError when it was damaged."""
    return _contexts.decompressor.decompress(data)


class _Contexts(local):
    """A thread's own zstd contexts: making one costs more than most frames, and sharing one is not safe."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()
