"""Read the newer rows of many runs with one query, which costs less than a query per run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, Connection, Label, Row, Select, Table, Text, bindparam, cast, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from trmon.store.database.postgres import BINARY
from trmon.store.schema import tables

_BIGINTS = ARRAY(BigInteger)
_LIMIT = bindparam("limit", type_=BigInteger)


def newer_rows(connection: Connection, table: Table, after: Mapping[int, int], *, limit: int) -> list[Row[Any]]:
    """Return the rows with an id larger than the one given for their run, oldest first; any `limit` of them if more."""
    rows = connection.execute(*newer_rows_query(connection.dialect.name, table, after, limit=limit))
    return sorted(rows, key=attrgetter("id"))


def newer_rows_query(
    dialect: str, table: Table, after: Mapping[int, int], *, limit: int
) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query and its parameters."""
    if dialect == "sqlite":
        return _SQLITE_QUERIES[table.name], {"limit": limit, "after": json.dumps(list(after.items()))}
    return _POSTGRES_QUERIES[table.name], {"limit": limit, "runs": list(after), "after": list(after.values())}


def is_moved(table: Table) -> Label[bool]:
    """Return the column that says whether the attempt of a message has moved to the lake, or is moving."""
    moved = tables.lake_batch_attempt
    found = select(moved.c.attempt_id).where(moved.c.attempt_id == table.c.attempt_id).correlate(table)
    return found.exists().label("is_moved")


def _sqlite_query(table: Table) -> Select[Any]:
    """Build the query with an outer join, which makes SQLite start with the runs; `is_found` drops the rows it adds."""
    given = func.json_each(bindparam("after", type_=Text)).table_valued("value", name="given")
    run_id, after = (func.json_extract(given.c.value, f"$[{i}]") for i in range(2))
    newer = (table.c.run_id == run_id) & (table.c.id > after)
    is_found = func.coalesce(table.c.id, 0) > 0
    return select(table, is_moved(table)).select_from(given.outerjoin(table, newer)).where(is_found).limit(_LIMIT)


def _postgres_query(table: Table) -> Select[Any]:
    """Build the query with a lateral join per run, whose order and limit keep PostgreSQL from scanning the table."""
    arrays = (cast(bindparam(name, type_=_BIGINTS), _BIGINTS) for name in ("runs", "after"))
    given = func.unnest(*arrays).table_valued("run_id", "after", name="given").render_derived()
    newer = (
        select(table, is_moved(table))
        .where(table.c.run_id == given.c.run_id, table.c.id > given.c.after)
        .order_by(table.c.id)
    )
    rows = newer.limit(_LIMIT).lateral()
    query = select(rows).select_from(given.join(rows, true())).limit(_LIMIT)
    return query.execution_options(**{BINARY: True})


_TABLES = (tables.notice, tables.report)
_SQLITE_QUERIES = {table.name: _sqlite_query(table) for table in _TABLES}
_POSTGRES_QUERIES = {table.name: _postgres_query(table) for table in _TABLES}
