"""The columns of a report as one block for each dtype, because an operation for each of 90 columns is slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.dtypes import DType
from trmon_client.core.columns.schema import N_BINS, Pair

DTYPES: tuple[DType, ...] = ("f8", "f4", "i8")
"""The order of the dtypes in packed columns."""
FLOATS: tuple[DType, ...] = ("f8", "f4")
_ODD_TOP_BYTES = b"\x7f\x80\xff"
"""The top bytes of all NaNs and of -0.0, which few other floats have."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlocks:
    """The columns of B sequences, a block for each dtype; in canonical form equal data has equal bytes.

    `rows` holds little-endian numbers, [columns, B] for each dtype; `names` holds the sorted names of the rows.
    `histograms` holds i8 [pairs, N_BINS], in the order of `pairs`.
    """

    n_sequences: int
    names: Mapping[DType, tuple[str, ...]]
    rows: Mapping[DType, bytes]
    pairs: tuple[Pair, ...]
    histograms: bytes

    @property
    def n_tokens(self) -> int:
        """The number of valid tokens of all sequences."""
        offset = 8 * self.n_sequences * self.names["i8"].index("n_tokens")
        return int(np.frombuffer(self.rows["i8"], "<i8", self.n_sequences, offset).sum())

    def by_name(self) -> dict[str, Any]:
        """Return the columns as arrays [B], without a copy."""
        values: dict[str, Any] = {}
        for dtype, names in self.names.items():
            matrix = np.frombuffer(self.rows[dtype], f"<{dtype}").reshape(len(names), self.n_sequences)
            values.update(zip(names, matrix, strict=True))
        return values

    def histograms_by_pair(self) -> dict[Pair, Any]:
        """Return the histograms as arrays [N_BINS], without a copy."""
        counts = np.frombuffer(self.histograms, "<i8").reshape(len(self.pairs), N_BINS)
        return dict(zip(self.pairs, counts, strict=True))


def canonical_numbers(rows: bytes, dtype: DType) -> bytes:
    """Return little-endian numbers with a single bit pattern for NaN and for zero."""
    if dtype not in FLOATS or not may_be_odd(top_bytes(rows, dtype)):
        return rows
    numbers = np.frombuffer(rows, f"<{dtype}").copy()
    numbers[np.isnan(numbers)] = np.nan
    numbers[numbers == 0] = 0.0
    return numbers.tobytes()


def top_bytes(rows: bytes, dtype: DType) -> bytes:
    """Return the byte with the sign of each number."""
    size = int(dtype[1])
    return rows[size - 1 :: size]


def may_be_odd(tops: bytes) -> bool:
    """Return whether floats with these top bytes can have other NaNs or zeros; a quick test before the full one."""
    return any(odd in tops for odd in _ODD_TOP_BYTES)
