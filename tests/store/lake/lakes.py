"""Runs that can move to a lake, their move, and checksums of what the database and the lake hold."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from sqlalchemy import select

from tests.fixtures.waiting import eventually
from tests.store.builders import (
    NOW,
    alert,
    alert_event,
    append,
    batch,
    batch_key,
    commit,
    decision,
    report_intake,
    start_intake,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.publish import Checkpoint, Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.archive.arrow_tables import SEQUENCES_SCHEMA, sequences_to_arrow
from trmon.store.lake.delta_schema import LAKE_BATCHES, LAKE_SEQUENCES, LAKE_TABLES, batch_from_lake
from trmon.store.schema import tables


def put_ended_run(
    store: Store,
    name: str,
    *,
    steps: int = 3,
    n_batches: int = 0,
    project: str = "math",
    now: float = NOW,
    state: RunState | None = None,
) -> int:
    """Store a run of one attempt that ended at a time, with reports, batches, decisions and an alert; return its id.

    Args: n_batches: at least that many batches, most of them without reports.
    """
    [started] = append(store, start_intake(project, name), now=now)
    reports = append(store, *(report_intake(project, name, step=step, seed=step) for step in range(steps)), now=now)
    run_id, attempt_id = started.run_id, started.attempt_id
    keys = [batch_key(attempt_id, step) for step in range(max(steps, n_batches))]
    first = alert(run_id=run_id, attempt_id=attempt_id)
    commit(
        store,
        run_id,
        frontier=Frontier(report_id=reports[-1].id, notice_id=started.id),
        batches=[
            batch(
                key,
                run_id=run_id,
                ordinal=i + 1,
                scalars={"loss": float("nan")},
                last_report_id=reports[min(i, steps - 1)].id,
            )
            for i, key in enumerate(keys)
        ],
        decisions=list(map(decision, keys)),
        alerts=[first],
        alert_events=[alert_event(first)],
        checkpoint=Checkpoint(ordinal=len(keys), version=1, state=b"state"),
        state=state or RunState.FINISHED,
        attempt_id=attempt_id,
        last_step=len(keys) - 1,
    )
    return run_id


Rows = dict[str, list[str]]
"""The rows of each table, each as a text."""


def stored_rows(store: Store, run_id: int) -> Rows:
    """Return the rows of a run in the database, in the tables that the lake has."""
    found: Rows = {}
    with store._reader.connect() as connection:
        attempts = list(connection.scalars(select(tables.attempt.c.id).where(tables.attempt.c.run_id == run_id)))
        for table in LAKE_TABLES:
            if table.archived is not None:
                source = table.archived.table.c
                is_of_run = source.attempt_id.in_(attempts) if "attempt_id" in source else source.run_id == run_id
                rows = connection.execute(select(*table.archived.columns).where(is_of_run))
                arrow = table.archived.to_arrow([row._asdict() for row in rows])
                found[table.name] = [repr(row) for row in arrow.to_pylist()]
        reports = connection.execute(select(tables.report).where(tables.report.c.run_id == run_id)).all()
    found["sequences"] = [repr(row) for row in sequences_to_arrow(reports).to_pylist()]
    found["batches"] = [repr(row) for row in store.batches.list(run_id, access=EVERYTHING, limit=100_000).items]
    return found


def rows_of_table(lake_url: object, name: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table of a lake, with some columns or all; none if it does not exist."""
    try:
        rows = DeltaTable(f"{lake_url}/{name}").to_pyarrow_table()
    except TableNotFoundError:
        return []
    return list((rows if columns is None else rows.select(columns)).to_pylist())


def lake_rows(lake_url: str) -> Rows:
    """Return the rows of a lake; a row that it has twice is there twice."""
    found: Rows = {}
    for table in LAKE_TABLES:
        if table is LAKE_BATCHES:
            found[table.name] = [repr(batch_from_lake(row)) for row in rows_of_table(lake_url, table.name)]
        elif table is LAKE_SEQUENCES or table.archived is not None:
            columns = SEQUENCES_SCHEMA.names if table.archived is None else table.archived.schema.names
            found[table.name] = list(map(repr, rows_of_table(lake_url, table.name, columns)))
    return found


def checksums(rows: Rows) -> dict[str, str]:
    """Return the checksum of each table, whatever the order of its rows."""
    return {name: hashlib.sha256("\n".join(sorted(table)).encode()).hexdigest() for name, table in rows.items()}


def merged(parts: Iterable[Rows]) -> Rows:
    found: Rows = {}
    for part in parts:
        for name, rows in part.items():
            found.setdefault(name, []).extend(rows)
    return found


N_TRIES = 20


def move_to_lake(store: Store, lake_url: str, *, now: float = NOW + 1000, after_seconds: float = 0.0) -> None:
    """Move what is idle at a time, which must be something."""
    mover, n_moved, n_conflicts = store.lake(lake_url), 0, 0
    while True:
        try:
            moved = mover.move_next(now=now, after_seconds=after_seconds)
        except NotReady as error:
            # The mover of a running service completes the same batch: one of the two commits first.
            n_conflicts += 1
            if not isinstance(error.__cause__, CommitFailedError) or n_conflicts == N_TRIES:
                raise
            time.sleep(0.1)
        else:
            if moved is None:
                break
            n_moved += 1
    assert n_moved + n_conflicts > 0


def delete_moved(store: Store) -> None:
    """Delete the large rows of moved attempts now; the mover of a running service does so in time, perhaps before."""
    eventually(store.moved_rows.delete, lambda n_deleted: n_deleted == 0)
