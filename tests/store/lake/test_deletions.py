"""Tests retention with a lake: what has moved goes, what waits stays, and late messages follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.builders import NOW, append, commit, count, report_intake, start_intake
from tests.store.lake.lakes import put_ended_run, rows_of_table
from trmon.domain.access import EVERYTHING
from trmon.domain.identity import RunKey
from trmon.domain.messages import DamagedReport
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.lake.mover import LakeMover
from trmon.store.schema import tables

LATER = NOW + 100
LIMITS = {"max_age_seconds": 1.0, "max_bytes_per_run": 0, "max_bytes": 0}


@pytest.fixture
def mover(store: Store, tmp_path: Path) -> LakeMover:
    """A mover into a new folder."""
    return store.lake(str(tmp_path / "lake"))


def n_rows(store: Store) -> dict[str, int]:
    """Return the number of rows of the tables that move."""
    found = (tables.report, tables.notice, tables.batch, tables.decision, tables.alert, tables.attempt)
    return {table.name: count(store, table) for table in found}


def test_what_has_moved_goes_and_the_small_tables_stay(store: Store, mover: LakeMover) -> None:
    run_id = put_ended_run(store, "one")
    assert store.moved_rows.delete() == 0
    mover.move_next(now=LATER, after_seconds=50.0)
    assert store.moved_rows.delete() == 3 + 1 + 3 + 3
    assert n_rows(store) == {"report": 0, "notice": 0, "batch": 0, "decision": 0, "alert": 1, "attempt": 1}
    progress = store.run_log.progress(run_id)
    assert (progress.checkpoint, progress.moved_ordinal) == (None, 3)


def test_limits_spare_only_what_waits_for_the_lake(store: Store, mover: LakeMover) -> None:
    put_ended_run(store, "ended")
    put_ended_run(store, "stalled", state=RunState.STALLED)
    put_ended_run(store, "running", state=RunState.RUNNING)
    assert store.retention.prune(now=LATER, keeps_for_lake=True, **LIMITS).reports == 3
    mover.move_next(now=LATER, after_seconds=50.0)
    assert store.retention.prune(now=LATER, keeps_for_lake=True, **LIMITS).reports == 6
    put_ended_run(store, "ended later")
    assert store.retention.prune(now=LATER, **LIMITS).reports == 3, "without a lake nothing is spared"


def test_a_late_report_is_withheld_from_the_worker_and_moves(store: Store, mover: LakeMover, tmp_path: Path) -> None:
    run_id = put_ended_run(store, "one")
    mover.move_next(now=LATER, after_seconds=50.0)
    store.moved_rows.delete()
    [late] = append(store, report_intake("math", "one", step=1, chunk=1), now=LATER)
    [unread] = store.reports.unread_of(run_id, Frontier(report_id=late.id - 1), limit=9).reports
    assert isinstance(unread, DamagedReport)
    assert (unread.is_late, unread.reason) == (True, "its attempt was moved to the lake")
    assert mover.move_next(now=LATER, after_seconds=50.0) is None, "its worker has not read it"
    commit(store, run_id, frontier=Frontier(report_id=late.id, notice_id=1 << 40))
    assert store.retention.prune(now=LATER + 100, keeps_for_lake=True, **LIMITS).reports == 0
    moved = mover.move_next(now=LATER, after_seconds=1e9)
    assert moved is not None
    assert (len(moved.members), moved.n_reports) == (1, 1)
    assert store.moved_rows.delete() == 1
    rows = rows_of_table(tmp_path / "lake", "reports")
    assert sorted((row["step"], row["chunk"]) for row in rows) == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert len(rows_of_table(tmp_path / "lake", "attempts")) == 1


def test_a_trainer_that_goes_on_after_the_move_starts_a_new_attempt(store: Store, mover: LakeMover) -> None:
    cases = [("launch-1", 3), ("launch-2", 3), ("launch-2", 0)]
    run_ids = [put_ended_run(store, f"run-{number}") for number in range(len(cases))]
    mover.move_next(now=LATER, after_seconds=50.0)
    for run_id, (launch, step) in zip(run_ids, cases, strict=True):
        run = store.runs.by_id(run_id).key.run
        if launch == "launch-2":
            append(store, start_intake("math", run, launch=launch), now=LATER)
        [result] = append(store, report_intake("math", run, step=step, launch=launch), now=LATER)
        [old, new] = store.runs.attempts(run_id)
        assert result.attempt_id == new.id
        assert (new.fork_of, new.fork_reason) == (old.id, Resolution.MOVED)
        assert new.name == f"a~{launch}"


def test_a_run_that_is_deleted_is_deleted_from_the_lake(store: Store, mover: LakeMover, tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_ended_run(store, name)
    mover.move_next(now=LATER, after_seconds=50.0)
    assert mover.delete_runs(now=LATER) == 0
    store.runs.delete(RunKey("math", "one"), access=EVERYTHING, now=LATER)
    assert mover.delete_runs(now=LATER) == 1
    assert mover.delete_runs(now=LATER) == 0
    for table in ("reports", "sequences", "batches", "attempts"):
        assert {row["run"] for row in rows_of_table(tmp_path / "lake", table)} == {"two"}
