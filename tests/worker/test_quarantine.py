"""Rules, messages and texts that cannot be processed are set aside, counted and shown; later messages are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import structlog
from msgspec import structs
from sqlalchemy import Table, select, text, update

from tests.domain.trainer import finished, report
from tests.store.builders import execute
from tests.worker.watched_run import (
    ORIGIN,
    RecordingObserver,
    WatchedRun,
    finish,
    receive,
    rows_of,
    scheduler_over,
    step_of,
)
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.publish import RunUpdate
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.rows import messages
from trmon.store.schema import tables
from trmon.worker.scheduler import Scheduler
from trmon_client.core import wire
from trmon_client.core.statistics import columns

GARBAGE = b"\xc1"


class TrainedRun(WatchedRun):
    """One run over a real store; `receive` runs no pass."""

    def __init__(self, store: Store) -> None:
        self.store = store
        super().__init__(store.run_log)

    def receive(self, *messages: wire.Message, at: float) -> None:
        self.run_id = receive(self.store, *messages, at=at)

    def damage(self, table: Table, **columns: Any) -> None:
        """Overwrite columns of the newest row of a table."""
        newest = select(table.c.id).order_by(table.c.id.desc()).limit(1).scalar_subquery()
        execute(self.store, update(table).where(table.c.id == newest).values(**columns))

    def train(self, steps: range) -> None:
        """Report steps ten seconds apart, each as one chunk that states its own count."""
        for step in steps:
            self.receive(step_of(step), at=10.0 * step)
            self.tick(10.0 * step)

    @property
    def rows(self) -> dict[int, BatchRow]:
        return {row.key.step: row for row in rows_of(self.store, self.run_id)}

    def delivered(self) -> set[tuple[str, str]]:
        """Return the (rule, status) of each delivery."""
        notifications = [delivery.notification for delivery in self.store.outbox.due(now=1e12, limit=100)]
        return {(told.alert.rule, told.status.value) for told in notifications}


def quarantined_parts(row: BatchRow) -> list[tuple[str, str]]:
    """Return the (part, place) of each entry that a row names."""
    return [(entry.part.value, entry.place) for entry in row.quarantined]


@pytest.fixture
def trained(store: Store) -> Iterator[TrainedRun]:
    """A run of two healthy steps."""
    with structlog.testing.capture_logs():
        run = TrainedRun(store)
        run.train(range(2))
        yield run


def broken_columns(store: Store) -> bytes:
    """Return the newest report's payload with one bit of its columns flipped."""
    with store.reports._reader.connect() as connection:
        newest = select(tables.report.c.payload).order_by(tables.report.c.id.desc()).limit(1)
        payload = bytearray(connection.execute(newest).scalar_one())
    payload[-20] ^= 1
    return bytes(payload)


def overflowing_payload() -> bytes:
    """Return the payload of a valid report whose trainer version is too large for an integer array."""
    logprobs = np.full((8, 4), -1.0)
    content = columns(
        rollout_logprobs=logprobs, old_logprobs=logprobs, mask=np.ones((8, 4), bool), versions=np.arange(8)
    )
    message = step_of(2, content=replace(content, trainer_version=1 << 64), policy=None, trainer_version=(1 << 64) - 1)
    parcel, _ = wire.storable_columns(message)
    return messages.pack_report(structs.replace(message, parcel=None), parcel=parcel)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("what", ["message", "columns"])
def test_a_damaged_report_is_a_missing_chunk(trained: TrainedRun, what: str, is_restarted: bool) -> None:
    trained.receive(step_of(2), at=20.0)
    trained.damage(tables.report, payload=GARBAGE if what == "message" else broken_columns(trained.store))
    if is_restarted:
        trained.restart()
    trained.tick(20.0)
    if is_restarted:
        trained.restart()
    trained.receive(report(3, finished=finished((2, None, 1), (3, None, 1))), at=30.0)
    trained.tick(100.0)
    trained.train(range(11, 13))
    rows = trained.rows
    assert set(rows) == {0, 1, 2, 3, 11, 12}
    assert not rows[2].complete
    assert ("report", "rank 0, chunk 0") in quarantined_parts(rows[2])
    assert any("is damaged" in entry.reason for entry in rows[2].quarantined)
    assert all(not row.quarantined and row.complete for step, row in rows.items() if step != 2)
    assert "mismatch_kl_k3" in rows[3].signals
    assert not trained.observer.failures
    assert trained.observer.quarantined[QuarantinePart.REPORT] == 1
    assert trained.delivered() == {("batch_quarantined", "firing")}


def test_a_batch_is_evaluated_over_its_undamaged_chunks(trained: TrainedRun) -> None:
    counts = finished((2, None, 1))
    trained.receive(report(2, world_size=2, finished=counts), at=20.0)
    trained.receive(report(2, rank=1, world_size=2, finished=counts), at=20.0)
    trained.damage(tables.report, payload=broken_columns(trained.store))
    trained.tick(20.0)
    row = trained.rows[2]
    assert (row.n_ranks, row.n_sequences, row.complete, row.missing_ranks) == (1, 8, False, ())
    assert quarantined_parts(row) == [("report", "rank 1, chunk 0")]
    assert row.signals["mismatch_kl_k3"] >= 0.0


def test_a_damaged_late_report_is_named_by_the_next_batch(trained: TrainedRun) -> None:
    trained.receive(report(1, chunk=1), at=15.0)
    trained.damage(tables.report, payload=GARBAGE)
    trained.tick(15.0)
    trained.train(range(2, 4))
    rows = trained.rows
    assert quarantined_parts(rows[1]) == [("report", "rank 0, chunk 1")]
    assert quarantined_parts(rows[2]) == [("report", "step 1, rank 0, chunk 1")]
    assert trained.observer.quarantined == {QuarantinePart.REPORT: 1}
    assert trained.delivered() == {("batch_quarantined", "firing")}


def test_a_batch_that_cannot_be_evaluated_gets_a_row_with_the_reason_and_is_not_retried(trained: TrainedRun) -> None:
    trained.receive(step_of(2), at=20.0)
    trained.damage(tables.report, payload=overflowing_payload())
    trained.tick(20.0)
    trained.train(range(3, 5))
    rows = trained.rows
    assert set(rows) == {0, 1, 2, 3, 4}
    assert quarantined_parts(rows[2]) == [("batch", "the whole batch")]
    assert "mismatch_kl_k3" not in rows[2].signals
    assert rows[2].quarantined[0].reason.startswith("OverflowError: ")
    assert not trained.observer.failures
    assert trained.observer.quarantined == {QuarantinePart.BATCH: 1}
    assert trained.delivered() == {("batch_quarantined", "firing")}
    trained.restart()
    trained.train(range(5, 7))
    assert (trained.rows[2].ordinal, trained.rows[2].revised) == (3, False)
    assert trained.rows[6].ordinal == 7
    assert trained.observer.quarantined == {QuarantinePart.BATCH: 1}


def test_a_damaged_notice_is_named_by_the_next_batch(trained: TrainedRun) -> None:
    trained.receive(wire.Scalars(attempt="a", launch="launch-1", sequence=1, step=2, values={"lr": 1.0}), at=19.0)
    trained.damage(tables.notice, payload=GARBAGE)
    trained.train(range(2, 5))
    rows = trained.rows
    assert quarantined_parts(rows[2]) == [("notice", "notice 1")]
    assert not rows[3].quarantined
    assert trained.observer.quarantined == {QuarantinePart.NOTICE: 1}
    assert trained.delivered() == {("batch_quarantined", "firing")}
    trained.restart()
    trained.train(range(5, 6))
    assert not trained.observer.failures


def test_a_damaged_checkpoint_is_replaced_by_a_replay(trained: TrainedRun) -> None:
    trained.scheduler.write_checkpoints()
    execute(trained.store, update(tables.run_state).values(state=GARBAGE))
    trained.restart()
    trained.train(range(2, 4))
    assert trained.rows[3].ordinal == 4
    assert not trained.observer.failures
    assert trained.observer.quarantined == {QuarantinePart.CHECKPOINT: 1}


def test_a_damaged_row_does_not_stop_a_restart(trained: TrainedRun) -> None:
    trained.damage(tables.batch, signals=b"\0" * 7)
    trained.restart()
    trained.train(range(2, 5))
    rows = trained.rows
    assert quarantined_parts(rows[1]) == [("row", "the stored row")]
    assert not rows[2].quarantined
    assert trained.store.run_log.progress(trained.run_id).frontier.report_id == 5
    assert not trained.observer.failures
    assert trained.observer.quarantined == {QuarantinePart.ROW: 1}


def test_a_run_with_a_damaged_report_still_stalls(trained: TrainedRun) -> None:
    trained.receive(step_of(2), at=20.0)
    trained.damage(tables.report, payload=GARBAGE)
    trained.tick(20.0)
    trained.tick(200.0)
    assert trained.store.runs.by_id(trained.run_id).state is RunState.STALLED
    assert ("stalled", "firing") in trained.delivered()


def test_a_run_that_cannot_be_evaluated_still_crashes(trained: TrainedRun) -> None:
    trained.receive(step_of(2), at=20.0)
    trained.damage(tables.report, payload=overflowing_payload())
    trained.receive(finish(2, outcome="crashed"), at=25.0)
    trained.tick(25.0)
    assert trained.store.runs.by_id(trained.run_id).state is RunState.CRASHED
    assert trained.delivered() >= {("crashed", "firing"), ("batch_quarantined", "firing")}


def test_a_damaged_report_ends_a_stall_but_does_not_revive_a_run_that_has_ended(trained: TrainedRun) -> None:
    trained.tick(500.0)
    trained.receive(step_of(2), at=510.0)
    trained.damage(tables.report, payload=GARBAGE)
    trained.tick(510.0)
    assert trained.store.runs.by_id(trained.run_id).state is RunState.RUNNING
    trained.receive(finish(2), at=520.0)
    trained.receive(step_of(3), at=521.0)
    trained.damage(tables.report, payload=GARBAGE)
    trained.tick(521.0)
    assert trained.store.runs.by_id(trained.run_id).state is RunState.FINISHED


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
def quiet_store(store_on_each: Store) -> Iterator[Store]:
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


def test_a_notice_that_fails_every_pass_is_quarantined_and_the_run_is_judged_to_its_end(quiet_store: Store) -> None:
    refuse(quiet_store, table="run", column="owner", value=POISON)
    observer = RecordingObserver()
    scheduler = scheduler_over(quiet_store.run_log, observer)
    run_id = receive(quiet_store, step_of(0), step_of(1), at=0.0)
    receive(quiet_store, wire.Start(**ORIGIN, owner=POISON), at=1.0)
    receive(quiet_store, step_of(2), step_of(3), at=2.0)
    receive(quiet_store, finish(3), at=3.0)
    run_until(scheduler, run_id, seconds=range(3, 30))
    assert [row.key.step for row in rows_of(quiet_store, run_id)] == [0, 1, 2, 3]
    assert quiet_store.run_log.runs.by_id(run_id).state is RunState.FINISHED
    assert observer.quarantined == {QuarantinePart.NOTICE: 1}
    named = [entry for row in rows_of(quiet_store, run_id) for entry in row.quarantined]
    assert [(entry.part, entry.place) for entry in named] == [(QuarantinePart.NOTICE, "notice 1")]
    assert "poisoned" in named[0].reason
    assert len(observer.failures) == 4, "three times in a page, and once alone"


def test_a_report_that_fails_every_pass_is_quarantined_and_the_run_goes_on(quiet_store: Store) -> None:
    refuse(quiet_store, table="run", column="last_step", value=2)
    observer = RecordingObserver()
    scheduler = scheduler_over(quiet_store.run_log, observer)
    run_id = receive(quiet_store, step_of(0), step_of(1), at=0.0)
    run_until(scheduler, run_id, seconds=range(1))
    # It fails as a report, and as a damaged one.
    receive(quiet_store, step_of(2), at=1.0)
    run_until(scheduler, run_id, seconds=range(1, 30))
    receive(quiet_store, step_of(3), at=30.0)
    receive(quiet_store, finish(3), at=31.0)
    run_until(scheduler, run_id, seconds=range(31, 40))
    assert quiet_store.run_log.runs.by_id(run_id).state is RunState.FINISHED
    assert [row.key.step for row in rows_of(quiet_store, run_id)] == [0, 1, 3]
    assert observer.quarantined == {QuarantinePart.REPORT: 1}
    named = [entry.place for row in rows_of(quiet_store, run_id) for entry in row.quarantined]
    assert named == ["step 2, rank 0, chunk 0"]


def test_what_fails_without_any_message_quarantines_none(quiet_store: Store) -> None:
    refuse(quiet_store, table="run_state", column="run_id", value=1)
    observer = RecordingObserver()
    scheduler = scheduler_over(quiet_store.run_log, observer)
    run_id = receive(quiet_store, step_of(0), at=0.0)
    assert run_id == 1
    receive(quiet_store, step_of(1), at=1.0)
    execute(quiet_store, text("INSERT INTO run_state (run_id, report_id, notice_id) VALUES (1, 0, 0)"))
    run_until(scheduler, run_id, seconds=range(1, 60))
    assert observer.failures
    assert observer.quarantined == {}
    assert not observer.passes


class AbsentDatabase:
    """Refuses each commit, as while the database is away."""

    def __init__(self, store: Store) -> None:
        self.is_away = True
        self._log = store.run_log

    def commit(self, updates: Sequence[RunUpdate], *, fences: object = None) -> list[Future[None]]:
        if self.is_away:
            raise NotReady("the database is away")
        return self._log.commit(updates)


def test_a_database_that_is_away_quarantines_nothing(quiet_store: Store) -> None:
    writer, observer = AbsentDatabase(quiet_store), RecordingObserver()
    scheduler = scheduler_over(quiet_store.run_log, observer, writer=writer)
    run_id = receive(quiet_store, step_of(0), step_of(1), finish(1), at=0.0)
    run_until(scheduler, run_id, seconds=range(40))
    writer.is_away = False
    run_until(scheduler, run_id, seconds=range(40, 80))
    assert len(observer.failures) >= 5
    assert observer.quarantined == {}
    assert quiet_store.run_log.runs.by_id(run_id).state is RunState.FINISHED


HOSTILE = "a\0b\x1b[2J\x9b"
SAFE = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"


LOSSES = wire.Losses(warnings={"repeated_chunk": HOSTILE}, refused_policies={"hash": HOSTILE})
MESSAGES: list[Any] = [
    wire.Start(**ORIGIN, owner="me", config={HOSTILE: [HOSTILE, {"a": HOSTILE}]}, client=HOSTILE),
    step_of(0, losses=LOSSES),
    step_of(1),
    wire.Pause(**ORIGIN, sequence=1, reason=HOSTILE),
    finish(1, outcome="crashed", error=HOSTILE, traceback=HOSTILE, reason=HOSTILE, signal=HOSTILE, losses=LOSSES),
]


def test_text_that_databases_refuse_does_not_stop_the_judging(store_on_each: Store) -> None:
    store, observer = store_on_each, RecordingObserver()
    run_id = receive(store, *map(wire.with_safe_texts, MESSAGES), at=0.0)
    scheduler_over(store.run_log, observer).run_passes([run_id], now=0.0)
    run = store.run_log.runs.by_id(run_id)
    assert observer.failures == []
    assert (run.state, len(rows_of(store, run_id))) == (RunState.CRASHED, 2)
    assert run.ending is not None
    assert (run.ending.error, run.ending.reason, run.config) == (SAFE, SAFE, {SAFE: [SAFE, {"a": SAFE}]})


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_the_texts_of_a_message_are_safe_once_it_is_received(message: wire.Message) -> None:
    safe = wire.with_safe_texts(message)
    assert all(mark not in text for text in texts_of(msgspec.to_builtins(safe)) for mark in "\0\x1b\x9b")
    assert wire.with_safe_texts(safe) == safe
    assert wire.decode(wire.encode(message)) == message, "the trainer's text is no reason to refuse a message"


def texts_of(value: object) -> list[str]:
    """Return all keys and texts of a document."""
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [value] if isinstance(value, str) else [text for item in items for text in texts_of(item)]
