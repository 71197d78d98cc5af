"""Reads only the row groups of parquet files that a read needs; footers and recent row groups stay in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from threading import Lock
from typing import Any, Generic, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """The most recently used values, up to a total size; may be used from any thread."""

    def __init__(self, size: int, *, size_of: Callable[[T], int] = lambda _: 1) -> None:
        self._room = size
        self._size_of = size_of
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value, made if it is not in memory; two threads may make it at the same time."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self._room -= self._size_of(made)
            while self._room < 0:
                self._room += self._size_of(self._values.popitem(last=False)[1])
        return made


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


FOOTER_FILES = 1024
"""How many files' footers stay in memory: reading one takes a request or two of an object store."""
GROUP_BYTES = 64 << 20
"""How many bytes of row groups stay in memory: a what-if reads step by step, and a row group holds many steps."""
KEPT_GROUPS = 4
"""A read of a file that needs more row groups than this reads them together, and keeps none."""


class _Footer:
    """The metadata of a file, and the bounds of its row groups by column."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self._places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        self._bounds: dict[str, list[tuple[Any, Any]]] = {}

    def groups(self, filters: Filters) -> list[int]:
        """Return the row groups that may have rows that match."""
        bounds = [(one, self._bounds_of(one.column)) for one in filters]
        return [
            group
            for group in range(self.metadata.num_row_groups)
            if all(one.may_match(*of_column[group]) for one, of_column in bounds)
        ]

    def _bounds_of(self, column: str) -> list[tuple[Any, Any]]:
        if column not in self._bounds:
            place = self._places[column]
            groups = (self.metadata.row_group(i).column(place) for i in range(self.metadata.num_row_groups))
            self._bounds[column] = [_bounds(group.statistics) for group in groups]
        return self._bounds[column]


class RowGroups:
    """The row groups of parquet files, which never change once they are written; may be used from any thread."""

    def __init__(self) -> None:
        self._footers: BoundedCache[_Footer] = BoundedCache(FOOTER_FILES)
        self._groups: BoundedCache[Any] = BoundedCache(GROUP_BYTES, size_of=lambda table: int(table.nbytes))

    def read(self, filesystem: Any, path: str, *, key: str, columns: Sequence[str], filters: Filters) -> Iterator[Any]:
        """Yield the rows of a file that match as Arrow tables.

        Args: key: names the file among those of all tables; columns: those to return, and those of the filters.
        """
        footer = self._footers.get(key, lambda: _read_footer(filesystem, path))
        groups = footer.groups(filters)
        pieces = [groups] if len(groups) > KEPT_GROUPS else [[group] for group in groups]
        for piece in pieces:
            read = partial(_read_groups, filesystem, path, piece, metadata=footer.metadata, columns=columns)
            rows = self._groups.get((key, *piece, *columns), read) if len(piece) == 1 else read()
            if filters and len(rows):
                rows = rows.filter(reduce(pc.and_, (one.mask(rows.column(one.column)) for one in filters)))
            yield rows


def _read_footer(filesystem: Any, path: str) -> _Footer:
    with filesystem.open_input_file(path) as source:
        return _Footer(pq.read_metadata(source))


def _read_groups(filesystem: Any, path: str, groups: Sequence[int], *, metadata: Any, columns: Sequence[str]) -> Any:
    with filesystem.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, metadata=metadata, pre_buffer=True)
        return parquet.read_row_groups(groups, columns=list(columns), use_threads=False)


def _bounds(statistics: Any) -> tuple[Any, Any]:
    if statistics is None or not statistics.has_min_max:
        return None, None
    return statistics.min, statistics.max
