"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL spell alike and SQLAlchemy twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

Row = Mapping[str, Any]


def insert_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves alone what stands under any of the table's unique keys."""
    return _insert(connection, table).on_conflict_do_nothing()


def upsert(connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows, all with the same columns, over those that stand under the same key."""
    if not rows:
        return
    statement = _insert(connection, table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed), list(rows))


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
