"""Storing a thing once under its natural key, and saying what already stands there."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, select

from trmon.domain.intake import Stored
from trmon.store.upsert import Row, insert_new


def store_once(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]
) -> list[tuple[Stored, Row]]:
    """Insert rows whose key is new, and return for each row what became of it and the row that stands.

    Rows of one call may share a key: the first is stored, the others are judged by it. Rows are the same when their
    `digest` is.
    """
    identity = itemgetter(*key)
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(identity(row), row)
    new = _insert(connection, table, key=key, rows=list(first.values())) if first else set()
    standing = {
        found: row if found in new else _standing(connection, table, dict(zip(key, found, strict=True)))
        for found, row in first.items()
    }
    return [(_judged(row, standing[identity(row)], new=identity(row) in new), standing[identity(row)]) for row in rows]


def _insert(connection: Connection, table: Table, *, key: Sequence[str], rows: list[Row]) -> set[Any]:
    statement = insert_new(connection, table).returning(*(table.c[name] for name in key))
    return {tuple(found) for found in connection.execute(statement, rows)}


def _standing(connection: Connection, table: Table, identity: Row) -> Row:
    where = [table.c[name] == value for name, value in identity.items()]
    return dict(connection.execute(select(table).where(*where)).mappings().one())


def _judged(row: Row, standing: Row, *, new: bool) -> Stored:
    if new and row is standing:
        return Stored.STORED
    return Stored.DUPLICATE if row["digest"] == standing["digest"] else Stored.CONFLICT
