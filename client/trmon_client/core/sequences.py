"""The sequences of a batch that have tokens, as float64 matrices: what signals are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns import Array, Columns


@dataclass(frozen=True, slots=True)
class Sequences:
    """The N sequences with at least one valid token: the only ones over which means are taken.

    A batch without a valid token is seen as one sequence of NaN: every signal is then NaN, and none needs a branch.
    `rows` says which of the columns' sequences these are; None: all of them.
    """

    columns: Columns
    rows: Array | None
    lengths: Array

    @classmethod
    def of(cls, columns: Columns) -> Sequences:
        """Return the sequences of numpy columns. Source: formulas, section 2."""
        lengths = columns["n_tokens"].astype(np.float64)
        rows = lengths > 0
        if rows.all() and len(lengths):
            return cls(columns, None, lengths)
        return cls(columns, rows, lengths[rows] if rows.any() else np.array([np.nan]))

    @property
    def is_empty(self) -> bool:
        """Whether the batch has no valid token at all."""
        return self.rows is not None and not self.rows.any()

    def matrix(self, names: Sequence[str]) -> Array:
        """Return the named columns as [len(names), N] float64."""
        if self.is_empty:
            return np.full((len(names), 1), np.nan)
        stacked = np.array([self.columns[name] for name in names], dtype=np.float64)
        return stacked if self.rows is None else stacked[:, self.rows]

    def labels(self, name: str) -> Array:
        """Return an integer column as it is, [N]: labels may be hashes, which float64 cannot hold."""
        if self.is_empty:
            return np.zeros(1, np.int64)
        return self.columns[name] if self.rows is None else self.columns[name][self.rows]
