"""The most frequent queries, each of which must use an index."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, Table, func, select

from trmon.store.database.newer_rows import newer_rows_query
from trmon.store.schema import tables

_report, _notice, _batch, _event = tables.report.c, tables.notice.c, tables.batch.c, tables.event.c
_claim, _delivery, _policy, _alert = tables.claim.c, tables.delivery.c, tables.policy_version.c, tables.alert.c

_HOT: dict[str, Select[Any]] = {
    "a run's new reports": select(_report.id).where(_report.run_id == 1, _report.id > 1).order_by(_report.id).limit(9),
    "a run's new notices": select(_notice.id).where(_notice.run_id == 1, _notice.id > 1).order_by(_notice.id).limit(9),
    "reports of a batch": select(_report.id).where(
        _report.attempt_id == 1, _report.step == 1, _report.update_index == -1
    ),
    "recent reports": select(_report.run_id, func.max(_report.id)).where(_report.id > 1).group_by(_report.run_id),
    "a run's newest batches": select(_batch.id).where(_batch.run_id == 1).order_by(_batch.ordinal.desc()).limit(9),
    "an attempt's history": select(_batch.id)
    .where(_batch.attempt_id == 1, _batch.ordinal > 1)
    .order_by(_batch.ordinal),
    "when a run was last seen": select(func.max(_claim.seen_at)).where(_claim.run_id == 1),
    "a run by name": select(tables.run.c.id).where(tables.run.c.project == "a", tables.run.c.name == "b"),
    "a run's policy": select(_policy.hash).where(_policy.run_id == 1).order_by(_policy.id.desc()).limit(1),
    "a run's alerts": select(_alert.id).where(_alert.run_id == 1).order_by(_alert.id.desc()).limit(9),
    "due deliveries": select(_delivery.id).where(_delivery.state == "due", _delivery.due_at <= 1.0),
    "new events": select(_event.id).where(_event.id > 1).order_by(_event.id).limit(9),
}


def hot_queries(dialect: str) -> dict[str, Select[Any]]:
    """Return the queries of a dialect by name."""
    return _HOT | {
        f"new {table.name}s of many runs": _of_many(dialect, table) for table in (tables.report, tables.notice)
    }


def unindexed_queries(connection: Connection) -> list[str]:
    """Return the names of the queries that scan a whole table."""
    hot = hot_queries(connection.dialect.name)
    if connection.dialect.name == "postgresql":
        # PostgreSQL scans small tables because that is faster: check whether an index could be used.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return [name for name, query in hot.items() if "Seq Scan" in _plan(connection, "EXPLAIN (COSTS OFF)", query)]
    return [name for name, query in hot.items() if _scans(_plan(connection, "EXPLAIN QUERY PLAN", query))]


def _of_many(dialect: str, table: Table) -> Select[Any]:
    query, given = newer_rows_query(dialect, table, {1: 1, 2: 1}, limit=9)
    return query.params(given)


def _plan(connection: Connection, explain: str, query: Select[Any]) -> str:
    written = query.compile(connection, compile_kwargs={"literal_binds": True})
    rows = connection.exec_driver_sql(f"{explain} {str(written).replace('%', '%%')}")
    return "\n".join(str(row[-1]) for row in rows)


def _scans(plan: str) -> bool:
    """Whether a plan scans a table; virtual tables are parameter lists."""
    tables = [line for line in plan.splitlines() if "VIRTUAL TABLE" not in line]
    return any(line.startswith(("SCAN", "SEARCH")) and "USING" not in line for line in tables)
