"""The tables that a query can name, and where the rows of each are."""

from __future__ import annotations

from trmon.store.lake import delta_schema
from trmon.store.lake.delta_schema import LakeTable

LAKE_BATCH = "lake_batch_id"
"""The column of the lake that queries do not see."""
ATTEMPTS = delta_schema.LAKE_ATTEMPTS.name
QUERY_TABLES = (
    delta_schema.LAKE_ATTEMPTS,
    delta_schema.LAKE_BATCHES,
    delta_schema.LAKE_SEQUENCES,
    delta_schema.LAKE_DECISIONS,
    delta_schema.LAKE_ALERTS,
    delta_schema.LAKE_ALERT_EVENTS,
    delta_schema.LAKE_POLICIES,
    delta_schema.LAKE_ADAPTATIONS,
    delta_schema.LAKE_NOTES,
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


def columns_of(table: LakeTable) -> tuple[str, ...]:
    """Return the columns of a table that queries see."""
    return tuple(name for name in table.schema.names if name != LAKE_BATCH)


def table_columns() -> dict[str, tuple[str, ...]]:
    """Return the columns of every table that a query can name."""
    columns = {table.name: columns_of(table) for table in QUERY_TABLES}
    return {RUNS: (*columns[ATTEMPTS], N_ATTEMPTS), **columns}


def runs_sql() -> str:
    """Return the query of the view `runs`."""
    of_run = "PARTITION BY database_id, run_id"
    replaced = ", ".join(
        f"CAST({function}({name}) OVER ({of_run}) AS {'DOUBLE' if name.endswith('_at') else 'BIGINT'}) AS {name}"
        for name, function in _OF_ALL_ATTEMPTS.items()
    )
    columns = f"* REPLACE ({replaced}), count(*) OVER ({of_run}) AS {N_ATTEMPTS}"
    newest = f"ordinal = max(ordinal) OVER ({of_run})"
    return f"SELECT {columns} FROM {ATTEMPTS} QUALIFY {newest}"  # noqa: S608 - names of this file
