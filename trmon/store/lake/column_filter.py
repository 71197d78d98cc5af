"""The rows of the lake that a read wants, by conditions that statistics of files and row groups can rule out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Filters: TypeAlias = Sequence["ColumnFilter"]


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """The wanted values of a column: those from `low` to `high`, both included, or of them only `values`."""

    column: str
    low: Any
    high: Any
    values: frozenset[Any] | None = None

    @classmethod
    def equal(cls, column: str, value: Any) -> Self:
        """Return the filter for one value."""
        return cls(column, value, value)

    @classmethod
    def any_of(cls, column: str, values: Collection[Any]) -> Self:
        """Return the filter for some values, one at least."""
        return cls(column, min(values), max(values), frozenset(values))

    def may_match(self, smallest: Any, largest: Any) -> bool:
        """Whether values between two bounds may match; None is an unknown bound."""
        if smallest is None or largest is None:
            return True
        if self.values is not None:
            return any(smallest <= value <= largest for value in self.values)
        return bool(smallest <= self.high and self.low <= largest)

    def mask(self, column: Any) -> Any:
        """Return which values of an Arrow column match."""
        if self.values is not None:
            return pc.is_in(column, value_set=pa.array(sorted(self.values), column.type))
        if self.low == self.high:
            return pc.equal(column, self.low)
        return pc.and_(pc.greater_equal(column, self.low), pc.less_equal(column, self.high))


def matching_rows(table: Any, filters: Filters) -> Any:
    """Return the rows of an Arrow table that match all filters."""
    if not filters or not len(table):
        return table
    return table.filter(reduce(pc.and_, (one.mask(table.column(one.column)) for one in filters)))
