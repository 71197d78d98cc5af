"""Columns from the wire as a few matrices: what is done to each of 90 columns costs more than what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trmon_client.core.schema import DType, Pair


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The columns of B sequences in their canonical form, a matrix a dtype: the same data is the same bytes.

    `matrices` holds [columns, B] a dtype, with one NaN and one zero; `names` says whose its rows are, sorted.
    `histograms` holds [pairs, N_BINS] of i8, in the order of `pairs`. All are little-endian.
    """

    names: Mapping[DType, tuple[str, ...]]
    matrices: Mapping[DType, Any]
    pairs: tuple[Pair, ...]
    histograms: Any

    @property
    def n_sequences(self) -> int:
        """B, the number of sequences, empty ones included."""
        return int(self.matrices["i8"].shape[1])

    @property
    def n_tokens(self) -> int:
        """The number of valid tokens of all sequences."""
        return int(self.matrices["i8"][self.names["i8"].index("n_tokens")].sum())
