"""Common parts of repositories: a read is one snapshot, and writes run in the transactions of the writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Engine, Executable, Select

from trmon.store.rows.mapping import Page, decode_cursor, page_of
from trmon.store.writing.group_commit import GroupCommit

T = TypeVar("T")


class Reader:
    """Reads a database."""

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def _rows(self, query: Executable, given: Mapping[str, Any] | None = None) -> Sequence[Any]:
        with self._reader.connect() as connection:
            return connection.execute(query, given).all()

    def _values(self, query: Select[Any]) -> Sequence[Any]:
        with self._reader.connect() as connection:
            return connection.scalars(query).all()

    def _page(
        self,
        query: Select[Any],
        column: ColumnElement[int],
        *,
        decode: Callable[[Any], T],
        after: str | None,
        limit: int,
    ) -> Page[T]:
        """Return the rows of a query as values, the largest of a column first. Errors: InvalidInput for the cursor.

        Args: column: a key, which the query selects.
        """
        if after is not None:
            query = query.where(column < decode_cursor(after))
        rows = self._rows(query.order_by(column.desc()).limit(limit + 1))
        shown = page_of(rows, limit=limit, key=lambda row: row._mapping[column])
        return Page(tuple(decode(row) for row in shown.items), shown.next)


class Repository(Reader):
    """Reads a database, and writes to it."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        super().__init__(reader)
        self._writer = writer
