"""The sequences of a batch that have tokens, as one float64 matrix: what signals are computed from.

A batch has about 90 columns of a few hundred bytes, so what is done to all of them at once costs least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from trmon_client.core.arrays.dtypes import REMEMBERED_LAYOUTS
from trmon_client.core.arrays.row_matrix import RowMatrix
from trmon_client.core.columns.columns import Array, Columns


@dataclass(frozen=True)
class SequenceMatrix:
    """The N sequences with at least one valid token: the only ones over which means are taken.

    A batch without a valid token is seen as one sequence of NaN: every signal is then NaN, and none needs a branch.
    `rows` says which of the columns' sequences these are; None: all of them. `values` holds every column, [columns, N]
    float64; labels that are hashes are not themselves there.
    """

    columns: Columns
    rows: Array | None
    values: Array

    @classmethod
    def of(cls, columns: Columns) -> SequenceMatrix:
        """Return the sequences of numpy columns. Source: formulas, section 2."""
        by_name = columns.by_name
        values = by_name.float64() if isinstance(by_name, RowMatrix) else np.array(list(by_name.values()), np.float64)
        rows = columns["n_tokens"] > 0
        if len(rows) and rows.all():
            return cls(columns, None, values)
        return cls(columns, rows, values.compress(rows, 1) if rows.any() else np.full((len(columns), 1), np.nan))

    @property
    def is_empty(self) -> bool:
        """Whether the batch has no valid token at all."""
        return self.rows is not None and not self.rows.any()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order of their rows in `values`."""
        return tuple(self.columns)

    @cached_property
    def lengths(self) -> Array:
        """The valid tokens of each, [N]."""
        return self.of_column("n_tokens")

    @cached_property
    def totals(self) -> Array:
        """The sum of each column, in the order of `names`."""
        return np.add.reduce(self.values, -1)

    @cached_property
    def sums(self) -> dict[str, float]:
        """The same by name."""
        return dict(zip(self.names, self.totals.tolist(), strict=True))

    def of_column(self, name: str) -> Array:
        """Return one column, [N] float64."""
        return self.values[column_rows(self.names)[name]]

    def matrix(self, names: Sequence[str]) -> Array:
        """Return the named columns as [len(names), N] float64."""
        at = column_rows(self.names)
        return self.values[[at[name] for name in names]]

    def labels(self, name: str) -> Array:
        """Return an integer column as it is, [N]: labels may be hashes, which float64 cannot hold."""
        if self.is_empty:
            return np.zeros(1, np.int64)
        return self.columns[name] if self.rows is None else self.columns[name][self.rows]


@lru_cache(REMEMBERED_LAYOUTS)
def column_rows(names: tuple[str, ...]) -> dict[str, int]:
    """Return the row of each column; remembered, as all batches of a run have the same columns."""
    return {name: row for row, name in enumerate(names)}
