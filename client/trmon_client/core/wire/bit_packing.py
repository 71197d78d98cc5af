"""Packs the accepted flags of sequences as bits."""

from __future__ import annotations

from typing import Any

import numpy as np


def pack_bits(accepted: Any) -> bytes:
    """Return booleans [B] as bits in little-endian bit order."""
    return np.packbits(np.asarray(accepted, dtype=bool), bitorder="little").tobytes()


def unpack_bits(bits: bytes, n: int) -> Any:
    """Return the first n bits as booleans [n]."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=n).astype(bool)
