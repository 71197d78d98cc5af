"""The tables that a query can name, and where the rows of each are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trmon.store.lake import delta_schema
from trmon.store.lake.delta_schema import LakeTable


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table of the lake that queries see. `stays`: the database keeps its rows once their attempt has moved.

    A row that stays is read from the database, where it may have changed since: an alert is acknowledged, a note added.
    """

    lake: LakeTable
    stays: bool = False

    @property
    def name(self) -> str:
        """Its name in SQL."""
        return self.lake.name

    @property
    def schema(self) -> Any:
        """The Arrow schema of its rows."""
        return pa.schema([field for field in self.lake.schema if field.name != LAKE_BATCH])


LAKE_BATCH = "lake_batch_id"
"""The column of the lake that queries do not see."""
ATTEMPTS = QueryTable(delta_schema.LAKE_ATTEMPTS)
QUERY_TABLES = (
    ATTEMPTS,
    QueryTable(delta_schema.LAKE_BATCHES),
    QueryTable(delta_schema.LAKE_SEQUENCES),
    QueryTable(delta_schema.LAKE_DECISIONS),
    QueryTable(delta_schema.LAKE_ALERTS, stays=True),
    QueryTable(delta_schema.LAKE_ALERT_EVENTS, stays=True),
    QueryTable(delta_schema.LAKE_POLICIES, stays=True),
    QueryTable(delta_schema.LAKE_ADAPTATIONS, stays=True),
    QueryTable(delta_schema.LAKE_NOTES, stays=True),
)
RUNS = "runs"
"""A view of the attempts: the newest one of each run, with the steps and sizes of all."""
N_ATTEMPTS = "n_attempts"
_OF_ALL_ATTEMPTS = {
    "first_step": "min",
    "newest_step": "max",
    "n_batches": "sum",
    "n_sequences": "sum",
    "n_tokens": "sum",
    "started_at": "min",
    "ended_at": "max",
}


def table_columns() -> dict[str, tuple[str, ...]]:
    """Return the columns of every table that a query can name."""
    columns = {table.name: tuple(table.schema.names) for table in QUERY_TABLES}
    return {RUNS: (*columns[ATTEMPTS.name], N_ATTEMPTS), **columns}


def runs_sql() -> str:
    """Return the query of the view `runs`."""
    of_run = "PARTITION BY database_id, run_id"
    replaced = ", ".join(
        f"CAST({function}({name}) OVER ({of_run}) AS {_sql_type(name)}) AS {name}"
        for name, function in _OF_ALL_ATTEMPTS.items()
    )
    columns = f"* REPLACE ({replaced}), count(*) OVER ({of_run}) AS {N_ATTEMPTS}"
    newest = f"ordinal = max(ordinal) OVER ({of_run})"
    return f"SELECT {columns} FROM {ATTEMPTS.name} QUALIFY {newest}"  # noqa: S608 - names of this file


def _sql_type(name: str) -> str:
    return "DOUBLE" if name.endswith("_at") else "BIGINT"
