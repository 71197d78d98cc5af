"""Columns as a few blocks: what is done to each of 90 columns costs more than what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.dtypes import DType
from trmon_client.core.columns.schema import N_BINS, Pair

DTYPES: tuple[DType, ...] = ("f8", "f4", "i8")
"""In the order in which their numbers lie in a parcel."""
FLOATS: tuple[DType, ...] = ("f8", "f4")
_ODD = b"\x7f\x80\xff"
"""The top bytes of every NaN and of -0.0, and of few other floats."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlocks:
    """The columns of B sequences, a block a dtype: where they are `canonical`, the same data is the same bytes.

    `rows` holds little-endian numbers, [columns, B] a dtype; `names` says whose rows they are, sorted. `histograms`
    holds [pairs, N_BINS] of i8, in the order of `pairs`.
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
        """Return the columns as arrays [B]; nothing is copied."""
        values: dict[str, Any] = {}
        for dtype, names in self.names.items():
            matrix = np.frombuffer(self.rows[dtype], f"<{dtype}").reshape(len(names), self.n_sequences)
            values.update(zip(names, matrix, strict=True))
        return values

    def histograms_by_pair(self) -> dict[Pair, Any]:
        """Return the histograms as arrays [N_BINS]; nothing is copied."""
        counts = np.frombuffer(self.histograms, "<i8").reshape(len(self.pairs), N_BINS)
        return dict(zip(self.pairs, counts, strict=True))


def canonical_numbers(rows: bytes, dtype: DType) -> bytes:
    """Return little-endian numbers with one NaN and one zero."""
    if dtype not in FLOATS or not may_be_odd(top_bytes(rows, dtype)):
        return rows
    numbers = np.frombuffer(rows, f"<{dtype}").copy()
    numbers[np.isnan(numbers)] = np.nan
    numbers[numbers == 0] = 0.0
    return numbers.tobytes()


def top_bytes(rows: bytes, dtype: DType) -> bytes:
    """Return of each number the byte with the sign."""
    size = int(dtype[1])
    return rows[size - 1 :: size]


def may_be_odd(tops: bytes) -> bool:
    """Whether floats with these top bytes may have more than one NaN and one zero; it costs less than to look."""
    return any(odd in tops for odd in _ODD)
