"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL spell alike and SQLAlchemy twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

Row = Mapping[str, Any]


def insert_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves alone what stands under any of the table's unique keys."""
    return _insert_new(connection.dialect.name, table)


def upsert(connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows, all with the same columns, over those that stand under the same key."""
    if rows:
        statement = _upsert(connection.dialect.name, table, tuple(key), tuple(rows[0]))
        connection.execute(statement, list(rows))


# Making a statement costs SQLAlchemy more than running it, and there are only a handful.


@cache
def _insert_new(dialect: str, table: Table) -> Insert:
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def _upsert(dialect: str, table: Table, key: tuple[str, ...], columns: tuple[str, ...]) -> Insert:
    statement = _insert(dialect, table)
    changed = {name: statement.excluded[name] for name in columns if name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


def _insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
