"""Columns as rows of a few matrices, because an operation for each of some 90 small arrays is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.dtypes import MAX_CACHED_LAYOUTS


@dataclass(frozen=True, slots=True, eq=False)
class RowMatrix(Mapping[str, Array]):
    """A mapping of name to row: `matrices` are numpy [columns, B], one for each dtype; `names` names the rows.

    A row is a view that is created on access.
    """

    matrices: tuple[Array, ...]
    names: tuple[tuple[str, ...], ...]

    def __getitem__(self, name: str) -> Array:
        matrix, row = _positions(self.names)[name]
        values: Array = self.matrices[matrix][row]
        return values

    def __contains__(self, name: object) -> bool:
        return name in _positions(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(_positions(self.names))

    def __len__(self) -> int:
        return len(_positions(self.names))

    def float64(self) -> Array:
        """Return all rows as one matrix, [columns, B] float64."""
        return np.concatenate(self.matrices, dtype=np.float64)

    @classmethod
    def merge(cls, parts: Sequence[RowMatrix]) -> RowMatrix:
        """Return the concatenated rows of parts with the same names."""
        matrices = zip(*(part.matrices for part in parts), strict=True)
        return cls(tuple(np.concatenate(same_dtype, 1) for same_dtype in matrices), parts[0].names)


@lru_cache(MAX_CACHED_LAYOUTS)
def _positions(names: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, int]]:
    """Return the matrix and the row of each column; cached, because all reports of a run have the same columns."""
    return {name: (matrix, row) for matrix, group in enumerate(names) for row, name in enumerate(group)}
