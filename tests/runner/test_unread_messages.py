"""Rounds over many runs: what came is read together, and each run hears what it would read alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from sqlalchemy import Engine, event, update

from tests.domain.trainer import finished, report
from tests.runner.watched_run import VIGIL, Counted, finish
from tests.store.builders import intake
from trmon.domain.batches.batch import BatchRow
from trmon.domain.runs.run import RunState
from trmon.runner.log_reader import PAGE
from trmon.runner.scheduler import READ_TOGETHER, Scheduler
from trmon.store import Store
from trmon.store.schema import tables
from trmon.views.run_view_cache import RunViewCache
from trmon_client.core import wire

ORIGIN: dict[str, Any] = {"attempt": "a", "launch": "launch-1"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A migrated store on a file of its own."""
    store = Store.open(f"sqlite:///{tmp_path / 'trmon.db'}")
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def counted() -> Counted:
    """What the rounds' observer has seen."""
    return Counted()


@pytest.fixture
def rounds(store: Store, counted: Counted) -> Scheduler:
    """Rounds with nothing in memory."""
    return Scheduler(
        store.run_log, outcomes=store.run_log, watch_config=VIGIL, display=RunViewCache(), observer=counted
    )


def receive(store: Store, run: int, *messages: wire.Message, at: float) -> int:
    """Make messages durable as the door does, and return their run."""
    futures = store.reports.append([intake(message, run=f"run-{run}") for message in messages], now=at)
    (run_id,) = {future.result(30).run_id for future in futures}
    return run_id


def step_of(step: int) -> wire.Report:
    """Return a step's only report, which counts itself."""
    return report(step, finished=finished((step, None, 1)))


def rows_of(store: Store, run_id: int) -> list[BatchRow]:
    """Return a run's rows in the order of their ordinals."""
    return store.run_log.batches_after(run_id, 0, limit=10_000)


@contextmanager
def asked_of(table: str) -> Iterator[list[str]]:
    """Yield a list that this thread's queries of a table come into: services of other tests may ask too."""
    found: list[str] = []
    thread = get_ident()

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if get_ident() == thread and (f"FROM {table}" in statement or f"JOIN {table} " in statement):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


def test_a_round_over_many_runs_reads_each_kind_once(store: Store, rounds: Scheduler) -> None:
    run_ids = [receive(store, run, step_of(0), at=0.0) for run in range(READ_TOGETHER)]
    rounds.make(run_ids, now=0.0)
    for run in range(READ_TOGETHER):
        receive(store, run, step_of(1), wire.Scalars(**ORIGIN, sequence=1, step=1, values={"lr": 1.0}), at=10.0)
    with asked_of("report") as of_reports, asked_of("notice") as of_notices:
        rounds.make(run_ids, now=10.0)
    assert (len(of_reports), len(of_notices)) == (1, 1)
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {2}
    assert {rows_of(store, run_id)[1].scalars["lr"] for run_id in run_ids} == {1.0}


def test_more_runs_than_are_read_together_are_all_read(store: Store, rounds: Scheduler) -> None:
    run_ids = [receive(store, run, step_of(0), at=0.0) for run in range(READ_TOGETHER + 3)]
    for step in range(1, 3):
        rounds.make(run_ids, now=10.0 * step)
        for run in range(len(run_ids)):
            receive(store, run, step_of(step), at=10.0 * step)
    assert rounds.make(run_ids, now=30.0) == set()
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {3}


def test_a_report_that_cannot_be_read_stops_no_other_run_and_is_not_tried_again(
    store: Store, rounds: Scheduler, counted: Counted
) -> None:
    run_ids = [receive(store, run, step_of(0), at=0.0) for run in range(5)]
    rounds.make(run_ids, now=0.0)
    for run in range(5):
        receive(store, run, step_of(1), at=10.0)
    rewrite(store, run_ids[2], payload=b"\xc1")
    assert rounds.make(run_ids, now=10.0) == set()
    # How many chunks the damaged one says that there are is not known: the batch waits until its grace is over.
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2, 2, 1, 2, 2]
    assert rounds.due(71.0) >= {run_ids[2]}
    rounds.make(run_ids, now=71.0)
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2] * 5
    assert not counted.failures


def rewrite(store: Store, run_id: int, *, payload: bytes) -> None:
    """Write over the payload of a run's newest report."""
    table = tables.report
    written = update(table).where(table.c.run_id == run_id, table.c.step == 1).values(payload=payload)
    store.writer.submit(lambda transaction: transaction.connection.execute(written).rowcount).result(30)


def test_a_run_that_catches_up_beside_others_hears_everything_in_its_order(store: Store, rounds: Scheduler) -> None:
    """The run is known, and behind by two pages and more; among its reports are scalars, and at the end is an end."""
    beside = [receive(store, run, step_of(0), at=0.0) for run in range(1, 4)]
    behind = receive(store, 0, step_of(0), at=0.0)
    rounds.make([behind, *beside], now=0.0)
    n_steps = 2 * PAGE + 100
    for first in range(1, n_steps, 100):
        for step in range(first, min(first + 100, n_steps)):
            spoken = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"lr": float(step)})
            receive(store, 0, spoken, step_of(step), at=float(step))
    receive(store, 0, finish(n_steps - 1), at=float(n_steps))
    for run in range(1, 4):
        receive(store, run, step_of(1), at=1.0)
    more, n_rounds = {behind, *beside}, 0
    while more:
        more = rounds.make(sorted(more), now=float(n_steps))
        n_rounds += 1
        assert more <= {behind}
    assert n_rounds == 3
    rows = rows_of(store, behind)
    assert [row.key.step for row in rows] == list(range(n_steps))
    assert [row.scalars["lr"] for row in rows[1:]] == [float(step) for step in range(1, n_steps)]
    assert store.run_log.run(behind).state is RunState.FINISHED
    assert [len(rows_of(store, run_id)) for run_id in beside] == [2, 2, 2]


def test_a_run_that_is_behind_costs_the_others_no_second_reading(store: Store, rounds: Scheduler) -> None:
    run_ids = [receive(store, run, step_of(0), at=0.0) for run in range(4)]
    rounds.make(run_ids, now=0.0)
    for step in range(1, 2 * PAGE + 10):
        receive(store, 0, step_of(step), at=1.0)
    assert rounds.make(run_ids, now=1.0) == {run_ids[0]}
    with asked_of("report") as of_reports:
        assert rounds.make(run_ids, now=2.0) == {run_ids[0]}
    assert len(of_reports) == 2, "once for the one that is behind, once for all others"
