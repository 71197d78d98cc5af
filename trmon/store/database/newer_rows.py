"""The newer rows of many runs in one query: beside so many runs, a query for each costs more than what it finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, Table, Text, bindparam, cast, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from trmon.store.database.postgres import BINARY
from trmon.store.schema import tables

_BIGINTS = ARRAY(BigInteger)
_MOST = bindparam("most", type_=BigInteger)


def newer_rows(connection: Connection, table: Table, after: Mapping[int, int], *, limit: int) -> list[Row[Any]]:
    """Return the rows of runs whose id is larger than each run's, oldest first; any `limit` of them if more."""
    found = connection.execute(*newer_rows_query(connection.dialect.name, table, after, limit=limit))
    return sorted(found, key=attrgetter("id"))


def newer_rows_query(
    dialect: str, table: Table, after: Mapping[int, int], *, limit: int
) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query and what it is given."""
    if dialect == "sqlite":
        return _OVER_SQLITE[table.name], {"most": limit, "after": json.dumps(list(after.items()))}
    return _OVER_POSTGRES[table.name], {"most": limit, "runs": list(after), "after": list(after.values())}


def _over_sqlite(table: Table) -> Select[Any]:
    """An outer join begins with the runs, whatever SQLite has counted of rows; what it adds is left out again."""
    asked = func.json_each(bindparam("after", type_=Text)).table_valued("value", name="asked")
    run_id, after = (func.json_extract(asked.c.value, f"$[{i}]") for i in range(2))
    newer = (table.c.run_id == run_id) & (table.c.id > after)
    is_there = func.coalesce(table.c.id, 0) > 0
    return select(table).select_from(asked.outerjoin(table, newer)).where(is_there).limit(_MOST)


def _over_postgres(table: Table) -> Select[Any]:
    """That each run's rows have an order and an end of their own keeps PostgreSQL from reading a table for all."""
    given = (cast(bindparam(name, type_=_BIGINTS), _BIGINTS) for name in ("runs", "after"))
    asked = func.unnest(*given).table_valued("run_id", "after", name="asked").render_derived()
    newer = select(table).where(table.c.run_id == asked.c.run_id, table.c.id > asked.c.after).order_by(table.c.id)
    found = newer.limit(_MOST).lateral()
    query = select(found).select_from(asked.join(found, true())).limit(_MOST)
    return query.execution_options(**{BINARY: True})


_TABLES = (tables.notice, tables.report)
_OVER_SQLITE = {table.name: _over_sqlite(table) for table in _TABLES}
_OVER_POSTGRES = {table.name: _over_postgres(table) for table in _TABLES}
