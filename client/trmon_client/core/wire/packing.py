"""Columns and bits for the wire: packed by the client."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, DType, Pair
from trmon_client.core.wire.messages import PackedColumn, WireColumn


def pack_columns(columns: Columns) -> dict[str, WireColumn]:
    """Return columns as little-endian bytes with a dtype each; columns must be numpy."""
    return {name: _pack(array, COLUMNS[name].dtype) for name, array in columns.items()}


def pack_histograms(columns: Columns) -> dict[Pair, WireColumn]:
    """Return the histograms of d as little-endian bytes; columns must be numpy."""
    return {pair: _pack(counts, "i8") for pair, counts in columns.histograms.items()}


def pack_bits(accepted: Any) -> bytes:
    """Return booleans [B] as bits, little-endian bit order."""
    return np.packbits(np.asarray(accepted, dtype=bool), bitorder="little").tobytes()


def unpack_bits(bits: bytes, n: int) -> Any:
    """Return the first n bits as booleans [n]."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=n).astype(bool)


def _pack(array: Any, dtype: DType) -> PackedColumn:
    return PackedColumn(dtype, np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes())
