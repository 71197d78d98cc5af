"""Columns as rows of a few matrices: what is done to each of some 90 arrays costs more than what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.dtypes import REMEMBERED_LAYOUTS


@dataclass(frozen=True, slots=True, eq=False)
class RowMatrix(Mapping[str, Array]):
    """A mapping of name to row: `matrices` are numpy [columns, B], one a dtype, `names` those of their rows.

    A row is made when it is asked for, of the matrix' own memory.
    """

    matrices: tuple[Array, ...]
    names: tuple[tuple[str, ...], ...]

    def __getitem__(self, name: str) -> Array:
        matrix, row = _places(self.names)[name]
        found: Array = self.matrices[matrix][row]
        return found

    def __contains__(self, name: object) -> bool:
        return name in _places(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(_places(self.names))

    def __len__(self) -> int:
        return len(_places(self.names))

    def float64(self) -> Array:
        """Return all rows as one matrix, [columns, B] float64."""
        return np.concatenate(self.matrices, dtype=np.float64)

    @classmethod
    def merge(cls, parts: Sequence[RowMatrix]) -> RowMatrix:
        """Return the rows of all parts, which have the same names, one after the other."""
        matrices = zip(*(part.matrices for part in parts), strict=True)
        return cls(tuple(np.concatenate(of_dtype, 1) for of_dtype in matrices), parts[0].names)


@lru_cache(REMEMBERED_LAYOUTS)
def _places(names: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, int]]:
    """Return the matrix and the row of each column; remembered, as all reports of a run have the same columns."""
    return {name: (matrix, row) for matrix, group in enumerate(names) for row, name in enumerate(group)}
