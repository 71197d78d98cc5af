"""Writing rows, with ON CONFLICT where needed, which SQLite and PostgreSQL spell alike and SQLAlchemy twice.

SQLite gets a statement with one row's places and many rows; PostgreSQL one statement a call, over an array a column,
so that five hundred rows cost it one plan and one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    Connection,
    Insert,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from trmon.store.database.pg_statement import PgStatement
from trmon.store.database.sqlite_statement import SqliteStatement

Row = Mapping[str, Any]
Columns = tuple[str, ...]
_OWNER = "run_id"
"""Whose row it is never changes: SQLite writes an index anew for a column that is named, whatever it is set to."""
_NEW = "new_"
"""Before the names of an update's parameters: SQLAlchemy keeps those of the columns to itself."""


def insert_rows(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns."""
    if rows:
        _execute(connection, _insert_statement(connection.dialect.name, table, tuple(rows[0])), rows)


def insert_new(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns, leaving alone what stands under any unique key."""
    if rows:
        _execute(connection, _insert_new_statement(connection.dialect.name, table, tuple(rows[0])), rows)


def insert_new_ids(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]
) -> dict[tuple[Any, ...], int]:
    """Insert rows as `insert_new` does, and return the ids of those that were new, by their keys."""
    if not rows:
        return {}
    statement = _insert_new_statement(connection.dialect.name, table, tuple(rows[0]))
    ids: list[int | None]
    if _is_sqlite(connection):
        ids = _sqlite_statement(statement, tuple(rows[0])).ids_of(connection, rows)
    else:
        sent = _pg_returning(statement, table, ("id", *key))
        given = sent.written(_arrays(rows))
        inserted = {found[1:]: found[0] for found in sent.rows(connection, given)}
        ids = [inserted.get(of_row) for of_row in zip(*(given[name] for name in key), strict=True)]
    keys = (tuple(row[name] for name in key) for row in rows)
    return {of_row: id_ for of_row, id_ in zip(keys, ids, strict=True) if id_ is not None}


def rows_by_key(
    connection: Connection, table: Table, *, key: Sequence[str], found: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """Return the whole rows that stand under keys, by their keys."""
    if not found:
        return {}
    names = [f"{_NEW}{name}" for name in key]
    statement = _select_by_key(connection.dialect.name, table, tuple(key))
    if _is_sqlite(connection):
        given = [dict(zip(names, values, strict=True)) for values in found]
    else:
        given = [dict(zip(names, map(list, zip(*found, strict=True)), strict=True))]
    rows = (row for values in given for row in connection.execute(statement, values).mappings())
    return {tuple(row[name] for name in key): dict(row) for row in rows}


def upsert(connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows, all with the same columns and each with a key of its own, over those that stand under that key.

    Whose they are stays as it is.
    """
    if rows:
        _execute(connection, _upsert_statement(connection.dialect.name, table, tuple(key), tuple(rows[0])), rows)


def update_rows(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Change rows that stand under their ids; `rows` have the id, and all the same columns to change."""
    if rows:
        statement = _update_statement(connection.dialect.name, table, tuple(rows[0]))
        _execute(connection, statement, [{_NEW + name: value for name, value in row.items()} for row in rows])


def unnest_rows(table: Table, columns: Sequence[str], *, prefix: str = "") -> Select[Any]:
    """Return a query for rows under the columns' names; for PostgreSQL.

    They are given as one array a column, as parameters under the same names after a prefix.
    """
    given = [bindparam(prefix + name, type_=ARRAY(table.c[name].type, dimensions=1)) for name in columns]
    return select(func.unnest(*given).table_valued(*columns).render_derived(name="given"))


def _execute(connection: Connection, statement: Insert | Update, rows: Sequence[Row]) -> None:
    if _is_sqlite(connection):
        _sqlite_statement(statement, tuple(rows[0])).write(connection, rows)
    else:
        sent = _pg_statement(statement)
        sent.send(connection, sent.written(_arrays(rows)))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _arrays(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# Making a statement costs SQLAlchemy more than running it, and there are only a handful.


@cache
def _sqlite_statement(statement: Insert | Update, columns: Columns) -> SqliteStatement:
    return SqliteStatement(statement, columns if isinstance(statement, Insert) else None)


@cache
def _pg_statement(statement: Insert | Update) -> PgStatement:
    return PgStatement(statement)


@cache
def _pg_returning(statement: Insert, table: Table, columns: Columns) -> PgStatement:
    return PgStatement(statement.returning(*(table.c[name] for name in columns)))


@cache
def _insert_new_statement(dialect: str, table: Table, columns: Columns) -> Insert:
    return _insert_statement(dialect, table, columns).on_conflict_do_nothing()


@cache
def _upsert_statement(dialect: str, table: Table, key: Columns, columns: Columns) -> Insert:
    statement = _insert_statement(dialect, table, columns)
    changed = {name: statement.excluded[name] for name in columns if name not in (*key, _OWNER)}
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


@cache
def _insert_statement(dialect: str, table: Table, columns: Columns) -> sqlite.Insert | postgresql.Insert:
    if dialect == "postgresql":
        return postgresql.insert(table).from_select(columns, unnest_rows(table, columns), include_defaults=False)
    return sqlite.insert(table)


@cache
def _select_by_key(dialect: str, table: Table, key: Columns) -> Select[Any]:
    if dialect == "postgresql":
        given = unnest_rows(table, key, prefix=_NEW).subquery()
        return select(table).join(given, and_(*(table.c[name] == given.c[name] for name in key)))
    return select(table).where(*(table.c[name] == bindparam(_NEW + name) for name in key))


@cache
def _update_statement(dialect: str, table: Table, columns: Columns) -> Update:
    changed = [name for name in columns if name != "id"]
    if dialect == "postgresql":
        given = unnest_rows(table, columns, prefix=_NEW).subquery()
        return update(table).where(table.c.id == given.c.id).values({name: given.c[name] for name in changed})
    of_row = update(table).where(table.c.id == bindparam(_NEW + "id"))
    return of_row.values({name: bindparam(_NEW + name) for name in changed})
