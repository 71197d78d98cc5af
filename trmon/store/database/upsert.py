"""Insert, upsert and update many rows with the same calls on SQLite and PostgreSQL.

SQLite runs a statement once per row. PostgreSQL gets one statement per call with an array per column, so five hundred
rows take one plan and one round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from trmon.store.database.sqlite import SqliteStatement

Row = Mapping[str, Any]
Columns = tuple[str, ...]
_RUN_ID = "run_id"
"""Never updated, since rows keep their run: SQLite rewrites the index of every column that an update names."""
_NEW = "new_"
"""Prefix of the parameters of an update: SQLAlchemy reserves the names of the columns."""


def insert_rows(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns."""
    if rows:
        _execute(connection, _insert_statement(connection.dialect.name, table, tuple(rows[0])), rows)


def insert_new(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns; a row that violates a unique key is skipped."""
    if rows:
        _execute(connection, _insert_new_statement(connection.dialect.name, table, tuple(rows[0])), rows)


def insert_new_ids(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]
) -> dict[tuple[Any, ...], int]:
    """Insert rows as `insert_new` does, and return the ids of the inserted ones by key."""
    if not rows:
        return {}
    statement = _insert_new_statement(connection.dialect.name, table, tuple(rows[0]))
    ids: list[int | None]
    if _is_sqlite(connection):
        ids = _sqlite_statement(statement, tuple(rows[0])).insert_returning_ids(connection, rows)
    else:
        prepared = _pg_returning(statement, table, ("id", *key))
        encoded = prepared.encode(_arrays(rows))
        inserted = {row[1:]: row[0] for row in prepared.rows(connection, encoded)}
        ids = [inserted.get(row_key) for row_key in zip(*(encoded[name] for name in key), strict=True)]
    keys = (tuple(row[name] for name in key) for row in rows)
    return {row_key: id_ for row_key, id_ in zip(keys, ids, strict=True) if id_ is not None}


def rows_by_key(
    connection: Connection, table: Table, *, key: Sequence[str], values: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """Return the stored rows with the given values of a unique key, by these values."""
    if not values:
        return {}
    names = [f"{_NEW}{name}" for name in key]
    statement = _select_by_key(connection.dialect.name, table, tuple(key))
    if _is_sqlite(connection):
        parameters = [dict(zip(names, row_key, strict=True)) for row_key in values]
    else:
        parameters = [dict(zip(names, map(list, zip(*values, strict=True)), strict=True))]
    rows = (row for given in parameters for row in connection.execute(statement, given).mappings())
    return {tuple(row[name] for name in key): dict(row) for row in rows}


def upsert(connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns and with distinct keys, or update the rows with their keys.

    The run of a row never changes.
    """
    if rows:
        _execute(connection, _upsert_statement(connection.dialect.name, table, tuple(key), tuple(rows[0])), rows)


def by_columns(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Return rows in lists with the same columns, each for one statement."""
    grouped: dict[Columns, list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row), []).append(row)
    return grouped.values()


def update_rows(connection: Connection, table: Table, *, rows: Sequence[Row]) -> None:
    """Update rows by id; each of `rows` has the id, and all have the same columns."""
    if rows:
        statement = _update_statement(connection.dialect.name, table, tuple(rows[0]))
        _execute(connection, statement, [{_NEW + name: value for name, value in row.items()} for row in rows])


def unnest_rows(table: Table, columns: Sequence[str], *, prefix: str = "") -> Select[Any]:
    """Return a PostgreSQL query for rows that are parameters: one array per column, named by prefix and column."""
    given = [bindparam(prefix + name, type_=ARRAY(table.c[name].type, dimensions=1)) for name in columns]
    return select(func.unnest(*given).table_valued(*columns).render_derived(name="given"))


def _execute(connection: Connection, statement: Insert | Update, rows: Sequence[Row]) -> None:
    if _is_sqlite(connection):
        _sqlite_statement(statement, tuple(rows[0])).write(connection, rows)
    else:
        prepared = _pg_statement(statement)
        prepared.send(connection, prepared.encode(_arrays(rows)))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _arrays(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# SQLAlchemy takes longer to compile a statement than to run it, and there are only a few.


@cache
def _sqlite_statement(statement: Insert | Update, columns: Columns) -> SqliteStatement:
    return SqliteStatement(statement, columns if isinstance(statement, Insert) else None)


_pg_statement = cache(PgStatement)


@cache
def _pg_returning(statement: Insert, table: Table, columns: Columns) -> PgStatement:
    return PgStatement(statement.returning(*(table.c[name] for name in columns)))


@cache
def _insert_new_statement(dialect: str, table: Table, columns: Columns) -> Insert:
    return _insert_statement(dialect, table, columns).on_conflict_do_nothing()


@cache
def _upsert_statement(dialect: str, table: Table, key: Columns, columns: Columns) -> Insert:
    statement = _insert_statement(dialect, table, columns)
    changed = {name: statement.excluded[name] for name in columns if name not in (*key, _RUN_ID)}
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
