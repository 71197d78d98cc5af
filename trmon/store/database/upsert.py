"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL spell alike and SQLAlchemy twice.

SQLite gets a statement with one row's places and many rows; PostgreSQL one statement a call, over an array a column,
so that five hundred rows cost it one plan and one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Connection, Insert, LargeBinary, Select, Table, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from trmon.store.database.columntypes import Blobs

Row = Mapping[str, Any]


def insert_all(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns."""
    if rows:
        dialect, columns = connection.dialect.name, tuple(rows[0])
        connection.execute(_insert(dialect, table, columns), _given(dialect, rows))


def insert_new(
    connection: Connection, table: Table, *, rows: Sequence[Row], returning: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Insert rows, leaving alone what stands under any unique key; return columns of those that were inserted."""
    if not rows:
        return []
    dialect = connection.dialect.name
    statement = _insert_new(dialect, table, tuple(rows[0]), tuple(returning))
    result = connection.execute(statement, _given(dialect, rows))
    return [tuple(row) for row in result] if returning else []


def upsert(connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows, all with the same columns and each with a key of its own, over those that stand under that key."""
    if rows:
        dialect = connection.dialect.name
        connection.execute(_upsert(dialect, table, tuple(key), tuple(rows[0])), _given(dialect, rows))


def unnested(table: Table, columns: Sequence[str]) -> Select[Any]:
    """Return a query for rows that are given as one array a column, under the columns' names; for PostgreSQL."""
    given = [bindparam(name, type_=_array_of(table.c[name])) for name in columns]
    return select(func.unnest(*given).table_valued(*columns).render_derived(name="given"))


def _array_of(column: ColumnElement[Any]) -> TypeEngine[Any]:
    return Blobs() if isinstance(column.type, LargeBinary) else ARRAY(column.type, dimensions=1)


def _given(dialect: str, rows: Sequence[Row]) -> Any:
    if dialect == "postgresql":
        return {name: [row[name] for row in rows] for name in rows[0]}
    return list(rows)


# Making a statement costs SQLAlchemy more than running it, and there are only a handful.


@cache
def _insert_new(dialect: str, table: Table, columns: tuple[str, ...], returning: tuple[str, ...]) -> Insert:
    statement = _insert(dialect, table, columns).on_conflict_do_nothing()
    return statement.returning(*(table.c[name] for name in returning)) if returning else statement


@cache
def _upsert(dialect: str, table: Table, key: tuple[str, ...], columns: tuple[str, ...]) -> Insert:
    statement = _insert(dialect, table, columns)
    changed = {name: statement.excluded[name] for name in columns if name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


@cache
def _insert(dialect: str, table: Table, columns: tuple[str, ...]) -> sqlite.Insert | postgresql.Insert:
    if dialect == "postgresql":
        return postgresql.insert(table).from_select(columns, unnested(table, columns), include_defaults=False)
    return sqlite.insert(table)
