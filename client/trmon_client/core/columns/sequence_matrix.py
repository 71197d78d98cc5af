"""The sequences of a batch that have tokens, as one float64 matrix from which signals are computed.

A batch has about 90 columns of a few hundred bytes, so one operation on all of them is fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from trmon_client.core.arrays.dtypes import MAX_CACHED_LAYOUTS
from trmon_client.core.arrays.row_matrix import RowMatrix
from trmon_client.core.columns.columns import Array, Columns


@dataclass(frozen=True)
class SequenceMatrix:
    """The N sequences with at least one valid token, over which means are taken.

    A batch without a valid token becomes one sequence of NaN, so that every signal is NaN without a special case.
    `rows` is a bool mask of the sequences in the batch; None selects all. `values` holds every column, [columns, N]
    float64; labels that are hashes lose precision there.
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
        """Whether the batch has no valid token."""
        return self.rows is not None and not self.rows.any()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the rows of `values`."""
        return tuple(self.columns)

    @cached_property
    def lengths(self) -> Array:
        """The number of valid tokens of each sequence, [N]."""
        return self.of_column("n_tokens")

    @cached_property
    def totals(self) -> Array:
        """The sum of each column, in the order of `names`."""
        return np.add.reduce(self.values, -1)

    @cached_property
    def sums(self) -> dict[str, float]:
        """The sum of each column by name."""
        return dict(zip(self.names, self.totals.tolist(), strict=True))

    def of_column(self, name: str) -> Array:
        """Return one column, [N] float64."""
        return self.values[column_rows(self.names)[name]]

    def matrix(self, names: Sequence[str]) -> Array:
        """Return the named columns as [len(names), N] float64."""
        row_of = column_rows(self.names)
        return self.values[[row_of[name] for name in names]]

    def labels(self, name: str) -> Array:
        """Return an integer column without conversion, [N]: float64 cannot hold labels that are hashes."""
        if self.is_empty:
            return np.zeros(1, np.int64)
        return self.columns[name] if self.rows is None else self.columns[name][self.rows]


@lru_cache(MAX_CACHED_LAYOUTS)
def column_rows(names: tuple[str, ...]) -> dict[str, int]:
    """Return the row of each column; cached, because all batches of a run have the same columns."""
    return {name: row for row, name in enumerate(names)}
