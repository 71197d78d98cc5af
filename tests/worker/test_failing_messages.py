"""A message that fails every pass over its run is quarantined by name, and the run goes on; nothing else is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import pytest
import structlog
from sqlalchemy import text

from tests.store.builders import execute
from tests.worker.watched_run import (
    ORIGIN,
    RecordingObserver,
    finish,
    receive,
    rows_of,
    scheduler_over,
    step_of,
)
from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.run_update import RunUpdate
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.worker.scheduler import Scheduler
from trmon_client.core import wire

POISON = "poison"
"""The database refuses to store it, as it would refuse what a later version of trmon does not foresee."""
TRIGGERS = {
    "sqlite": [
        "CREATE TRIGGER poisoned BEFORE UPDATE ON {table} WHEN NEW.{column} = {value!r}"
        " BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$",
        "CREATE TRIGGER poisoned BEFORE UPDATE ON {table} FOR EACH ROW WHEN (NEW.{column} = {value!r})"
        " EXECUTE FUNCTION refuse()",
    ],
}


@pytest.fixture
def store(store_on_each: Store) -> Iterator[Store]:
    """The store, without what is logged of the failures."""
    with structlog.testing.capture_logs():
        yield store_on_each


def refuse(store: Store, *, table: str, column: str, value: object) -> None:
    """Have the database refuse to write a value of a column."""
    for statement in TRIGGERS[store.writer._committer._engine.dialect.name]:
        execute(store, text(statement.format(table=table, column=column, value=value)))


def run_until(scheduler: Scheduler, run_id: int, *, seconds: range) -> None:
    """Run passes, as a worker does: at once where messages wait, else when the backoff is over."""
    for now in seconds:
        while scheduler.run_passes([run_id], now=float(now)):
            pass


def test_a_notice_that_fails_every_pass_is_quarantined_and_the_run_is_judged_to_its_end(store: Store) -> None:
    refuse(store, table="run", column="owner", value=POISON)
    observer = RecordingObserver()
    scheduler = scheduler_over(store.run_log, observer)
    run_id = receive(store, step_of(0), step_of(1), at=0.0)
    receive(store, wire.Start(**ORIGIN, owner=POISON), at=1.0)
    receive(store, step_of(2), step_of(3), at=2.0)
    receive(store, finish(3), at=3.0)
    run_until(scheduler, run_id, seconds=range(3, 30))
    assert [row.key.step for row in rows_of(store, run_id)] == [0, 1, 2, 3]
    assert store.run_log.runs.by_id(run_id).state is RunState.FINISHED
    assert observer.quarantined == {QuarantinePart.NOTICE: 1}
    named = [entry for row in rows_of(store, run_id) for entry in row.quarantined]
    assert [(entry.part, entry.place) for entry in named] == [(QuarantinePart.NOTICE, "notice 1")]
    assert "poisoned" in named[0].reason
    assert len(observer.failures) == 4, "three times in a page, and once alone"


def test_a_report_that_fails_every_pass_is_quarantined_and_the_run_goes_on(store: Store) -> None:
    refuse(store, table="run", column="last_step", value=2)
    observer = RecordingObserver()
    scheduler = scheduler_over(store.run_log, observer)
    run_id = receive(store, step_of(0), step_of(1), at=0.0)
    run_until(scheduler, run_id, seconds=range(1))
    # It fails as a report, and as a damaged one.
    receive(store, step_of(2), at=1.0)
    run_until(scheduler, run_id, seconds=range(1, 30))
    receive(store, step_of(3), at=30.0)
    receive(store, finish(3), at=31.0)
    run_until(scheduler, run_id, seconds=range(31, 40))
    assert store.run_log.runs.by_id(run_id).state is RunState.FINISHED
    assert [row.key.step for row in rows_of(store, run_id)] == [0, 1, 3]
    assert observer.quarantined == {QuarantinePart.REPORT: 1}
    named = [entry.place for row in rows_of(store, run_id) for entry in row.quarantined]
    assert named == ["step 2, rank 0, chunk 0"]


def test_what_fails_without_any_message_quarantines_none(store: Store) -> None:
    refuse(store, table="run_state", column="run_id", value=1)
    observer = RecordingObserver()
    scheduler = scheduler_over(store.run_log, observer)
    run_id = receive(store, step_of(0), at=0.0)
    assert run_id == 1
    receive(store, step_of(1), at=1.0)
    execute(store, text("INSERT INTO run_state (run_id, report_id, notice_id) VALUES (1, 0, 0)"))
    run_until(scheduler, run_id, seconds=range(1, 120))
    assert observer.failures
    assert observer.quarantined == {}
    assert not observer.passes


class AbsentDatabase:
    """Refuses each commit, as while the database is away."""

    def __init__(self, store: Store) -> None:
        self.is_away = True
        self._log = store.run_log

    def commit(self, updates: Sequence[RunUpdate], *, fences: object = None) -> list[Future[None]]:
        """Refuse, or commit."""
        if self.is_away:
            raise NotReady("the database is away")
        return self._log.commit(updates)


def test_a_database_that_is_away_quarantines_nothing(store: Store) -> None:
    writer, observer = AbsentDatabase(store), RecordingObserver()
    scheduler = scheduler_over(store.run_log, observer, writer=writer)
    run_id = receive(store, step_of(0), step_of(1), finish(1), at=0.0)
    run_until(scheduler, run_id, seconds=range(100))
    writer.is_away = False
    run_until(scheduler, run_id, seconds=range(100, 200))
    assert len(observer.failures) >= 5
    assert observer.quarantined == {}
    assert store.run_log.runs.by_id(run_id).state is RunState.FINISHED
