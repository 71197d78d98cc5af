"""Compresses numbers by byte shuffling and zstd, for the wire and for storage."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
import zstandard

from trmon_client.core.arrays.dtypes import DType

LEVEL = 3
NOISE_LEVEL = -1
"""The level for columns, which are mostly mantissa noise: 40% of the time at no more than 0.5% of the raw size."""
MAX_NOISE_BYTES = 1 << 18
"""Above this size level 3 finds distant repetitions, which saves 3% of the raw size."""


def byte_shuffle(numbers: bytes, size: int) -> bytes:
    """Return numbers of `size` bytes each as planes: all first bytes, then all second bytes."""
    return b"".join([numbers[i::size] for i in range(size)])


def byte_unshuffle(data: bytes, *, dtype: DType, shape: tuple[int, int], offset: int = 0) -> Any:
    """Return the numbers [rows, n] whose planes start at the offset."""
    size = int(dtype[1])
    planes = np.frombuffer(data, np.uint8, shape[0] * shape[1] * size, offset).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(f"<{dtype}").reshape(shape)


def compress(data: bytes) -> bytes:
    """Return data as one zstd frame with a checksum."""
    return _contexts.compressor.compress(data)


def compress_noise(data: bytes) -> bytes:
    """Return data that is mostly noise as one zstd frame with a checksum, at a faster level."""
    return (_contexts.noise if len(data) <= MAX_NOISE_BYTES else _contexts.compressor).compress(data)


def decompress_frame(data: bytes, *, n_bytes: int | None = None) -> bytes:
    """Return the decompressed data of a frame.

    Args: n_bytes: the expected size; a frame of another size is rejected before it is decompressed.
    Errors: zstandard.ZstdError if the frame is damaged or has another size.
    """
    if n_bytes is not None and zstandard.frame_content_size(data) != n_bytes:
        raise zstandard.ZstdError(f"frame does not hold {n_bytes} bytes")
    return _contexts.decompressor.decompress(data, allow_extra_data=False)


class _Contexts(local):
    """The zstd contexts of a thread: creating one takes longer than most frames, and sharing one is not safe."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self.noise = zstandard.ZstdCompressor(level=NOISE_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()
