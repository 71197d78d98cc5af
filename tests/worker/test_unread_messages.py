"""Rounds over many runs: their messages are read together, and each run gets what it would read alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import pytest
from sqlalchemy import Engine, event, update

from tests.store.builders import execute
from tests.worker.watched_run import ORIGIN, RecordingObserver, finish, receive, rows_of, scheduler_over, step_of
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.schema import tables
from trmon.worker import messages
from trmon.worker import scheduler as scheduling
from trmon.worker.scheduler import Scheduler
from trmon_client.core import wire


@pytest.fixture
def observer() -> RecordingObserver:
    """The scheduler's observer."""
    return RecordingObserver()


@pytest.fixture
def scheduler(store: Store, observer: RecordingObserver) -> Scheduler:
    """A scheduler without any run in memory."""
    return scheduler_over(store.run_log, observer)


PAGE, GROUP_SIZE = 40, 8


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few messages fill a page and a few runs a group."""
    for module in (messages, scheduling):
        monkeypatch.setattr(module, "PAGE", PAGE)
        monkeypatch.setattr(module, "QUANTUM", PAGE)
    monkeypatch.setattr(scheduling, "GROUP_SIZE", GROUP_SIZE)


@contextmanager
def queries_of(table: str) -> Iterator[list[str]]:
    """Yield a list that collects this thread's queries of a table: services of other tests may query too."""
    found: list[str] = []
    thread = get_ident()

    def record(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if get_ident() == thread and (f"FROM {table}" in statement or f"JOIN {table} " in statement):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    yield found
    event.remove(Engine, "before_cursor_execute", record)


def test_a_round_over_many_runs_reads_each_kind_once(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(GROUP_SIZE)]
    scheduler.run_passes(run_ids, now=0.0)
    for run in range(GROUP_SIZE):
        receive(
            store, step_of(1), wire.Scalars(**ORIGIN, sequence=1, step=1, values={"lr": 1.0}), at=10.0, run=f"run-{run}"
        )
    with queries_of("report") as of_reports, queries_of("notice") as of_notices:
        scheduler.run_passes(run_ids, now=10.0)
    assert (len(of_reports), len(of_notices)) == (1, 1)
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {2}
    assert {rows_of(store, run_id)[1].scalars["lr"] for run_id in run_ids} == {1.0}


def test_more_runs_than_one_group_are_all_read(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(GROUP_SIZE + 3)]
    for step in range(1, 3):
        scheduler.run_passes(run_ids, now=10.0 * step)
        for run in range(len(run_ids)):
            receive(store, step_of(step), at=10.0 * step, run=f"run-{run}")
    assert scheduler.run_passes(run_ids, now=30.0) == set()
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {3}


def test_a_damaged_report_does_not_stop_other_runs_and_is_not_retried(
    store: Store, scheduler: Scheduler, observer: RecordingObserver
) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(5)]
    scheduler.run_passes(run_ids, now=0.0)
    for run in range(5):
        receive(store, step_of(1), at=10.0, run=f"run-{run}")
    report = tables.report
    newest = update(report).where(report.c.run_id == run_ids[2], report.c.step == 1)
    execute(store, newest.values(payload=b"\xc1"))
    assert scheduler.run_passes(run_ids, now=10.0) == set()
    # The chunk count in the damaged report is unknown: the batch waits until its grace ends.
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2, 2, 1, 2, 2]
    assert scheduler.pop_due(71.0) >= {run_ids[2]}
    scheduler.run_passes(run_ids, now=71.0)
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2] * 5
    assert not observer.failures


def test_a_run_that_catches_up_with_others_gets_every_message_in_order(store: Store, scheduler: Scheduler) -> None:
    """The run is loaded, and has more than two pages of reports and scalars unread, then a finish."""
    others = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(1, 4)]
    behind = receive(store, step_of(0), at=0.0, run="run-0")
    scheduler.run_passes([behind, *others], now=0.0)
    n_steps = 2 * PAGE + 10
    for step in range(1, n_steps):
        scalars = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"lr": float(step)})
        receive(store, scalars, step_of(step), at=float(step), run="run-0")
    receive(store, finish(n_steps - 1), at=float(n_steps), run="run-0")
    for run in range(1, 4):
        receive(store, step_of(1), at=1.0, run=f"run-{run}")
    more, n_rounds = {behind, *others}, 0
    while more:
        more = scheduler.run_passes(sorted(more), now=float(n_steps))
        n_rounds += 1
        assert more <= {behind}
    assert n_rounds == 3
    rows = rows_of(store, behind)
    assert [row.key.step for row in rows] == list(range(n_steps))
    assert [row.scalars["lr"] for row in rows[1:]] == [float(step) for step in range(1, n_steps)]
    assert store.runs.by_id(behind).state is RunState.FINISHED
    assert [len(rows_of(store, run_id)) for run_id in others] == [2, 2, 2]


def test_a_run_that_is_behind_does_not_make_the_others_read_alone(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(4)]
    scheduler.run_passes(run_ids, now=0.0)
    for step in range(1, 2 * PAGE + 10):
        receive(store, step_of(step), at=1.0, run="run-0")
    assert scheduler.run_passes(run_ids, now=1.0) == {run_ids[0]}
    with queries_of("report") as of_reports:
        assert scheduler.run_passes(run_ids, now=2.0) == {run_ids[0]}
    assert len(of_reports) == 2, "once for the one that is behind, once for all others"


def test_a_run_with_more_than_a_quantum_reads_its_own_part(
    store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (messages, scheduling):
        monkeypatch.setattr(module, "QUANTUM", 8)
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(4)]
    scheduler.run_passes(run_ids, now=0.0)
    for step in range(1, 13):
        receive(store, step_of(step), at=float(step), run="run-0")
    receive(store, step_of(1), at=1.0, run="run-1")
    assert scheduler.run_passes(run_ids, now=12.0) == {run_ids[0]}
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [8, 2, 1, 1]
    assert scheduler.run_passes(run_ids, now=12.0) == set()
    assert len(rows_of(store, run_ids[0])) == 13
