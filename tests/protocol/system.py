"""The real parts under test: a database, a service that stores reports, and workers that own runs by leases.

A commit can be made to fail, on both databases: a trigger leaves a dangling row behind, whose deferred foreign key ends
the transaction at COMMIT.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import select, text

from tests.domain.pipeline.closings import parse_rules
from tests.fixtures.waiting import eventually
from tests.protocol.model import Batch, Change, ClosedRow
from tests.worker.watched_run import WATCH_CONFIG, RecordingObserver
from trmon.domain.alerts.delivery import RetryPolicy, Routes
from trmon.domain.alerts.notification import Notification
from trmon.domain.messages import PreparedMessage, WriteResult
from trmon.domain.ownership import Fences, Ownership
from trmon.domain.pipeline.publish import RunUpdate
from trmon.fleet.views import RunViewCache
from trmon.notify.dispatcher import DeliveryPolicy, Dispatcher
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult
from trmon.store import Store
from trmon.store.database import engines_of
from trmon.store.database.engines import is_shared
from trmon.store.repositories.leases import Leases
from trmon.store.schema import tables
from trmon.worker.scheduler import Scheduler

RECEIVER = "hook"
RULES = parse_rules(
    "- {name: corrupt, severity: page, summary: x, immune_steps: 0, for_steps: 1, clear_for_steps: 1,"
    " when: {signal: saturated_fraction, above: 0.001}}"
)
CONFIG = replace(WATCH_CONFIG, rules=lambda: RULES, routes=Routes(receivers=(RECEIVER,)))
POLICY = DeliveryPolicy(
    routes=CONFIG.routes, retry=RetryPolicy(max_attempts=1000, backoff_seconds=1e-6), remind_seconds=1e9
)
FAULT = """
CREATE TABLE IF NOT EXISTS fault (is_on INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS dangling (run_id BIGINT REFERENCES run (id) DEFERRABLE INITIALLY DEFERRED);
"""
SQLITE_TRIGGER = """
CREATE TRIGGER fail_{table} AFTER {verb} ON {table} WHEN EXISTS (SELECT 1 FROM fault)
BEGIN INSERT INTO dangling VALUES (-1); END;
"""
POSTGRES_FUNCTION = """
CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF EXISTS (SELECT 1 FROM fault) THEN INSERT INTO dangling VALUES (-1); END IF; RETURN NULL; END $$;
"""
POSTGRES_TRIGGER = "CREATE TRIGGER fail_{table} AFTER {verb} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION fail();"
FAILING = (("report", "INSERT"), ("batch", "INSERT"), ("delivery", "UPDATE"))


def prepare_faults(url: str) -> None:
    """Add the triggers to a migrated database."""
    engines = engines_of(url)
    trigger = POSTGRES_TRIGGER if is_shared(url) else SQLITE_TRIGGER
    script = [*FAULT.split(";\n"), *([POSTGRES_FUNCTION] if is_shared(url) else [])]
    with engines.writing.begin() as connection:
        for statement in (*script, *(trigger.format(table=table, verb=verb) for table, verb in FAILING)):
            if statement.strip():
                connection.execute(text(statement.replace(":", "\\:")))
    engines.dispose()


class Inbox:
    """A receiver that records what it has taken; it refuses the first `n_failures` attempts."""

    repeat_seconds = None
    is_grouping = False
    merges_runs = False

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.n_failures = 0
        self.after_taking: Callable[[], None] = _nothing

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        if self.n_failures:
            self.n_failures -= 1
            return DeliveryResult(DeliveryOutcome.RETRY, "not now")
        self.taken.update(notification.key for notification in notifications)
        self.after_taking()
        return DeliveryResult(DeliveryOutcome.DELIVERED)

    def close(self) -> None:
        """See Receiver."""


class Worker(Ownership):
    """A worker; as a writer and as an owner of slots it lets `interruption` happen at the worst moment, once."""

    def __init__(self, store: Store, leases: Leases | None) -> None:
        self.store = store
        self.leases = leases
        self.observer = RecordingObserver()
        self.held: Fences | None = None if leases is None else {}
        self.is_lapsed = False
        self._interruptions: list[Callable[[], None]] = []
        self.kill()

    def kill(self) -> None:
        self.scheduler = Scheduler(
            self.store.run_log, writer=self, watch_config=CONFIG, views=RunViewCache(), observer=self.observer
        )
        self.scheduler.set_fences(self.held)

    def renew(self) -> None:
        """Renew the leases, as a process does every few seconds, and hand over what is too many."""
        if self.leases is not None:
            holdings = self.leases.renew()
            if holdings.surplus:
                self.scheduler.write_checkpoints(holdings.surplus)
                self.leases.release(holdings.surplus)
            self.held = holdings.without(holdings.surplus).fences
            self.is_lapsed = False
        self.scheduler.set_fences(self.held)

    def run_round(self, run_ids: Collection[int], *, now: float) -> None:
        """Run passes until no message is unread."""
        more = set(run_ids)
        while more:
            more = self.scheduler.run_passes(more | self.scheduler.pop_due(now), now=now)

    def deliver(self, inbox: Inbox) -> None:
        dispatcher = Dispatcher(self.store.outbox, {RECEIVER: inbox}, ownership=self, policy=POLICY, count=self._count)
        self._n_failed_records = 0
        dispatcher.start()
        try:
            eventually(lambda: self._n_failed_records or not self._has_due())
        finally:
            dispatcher.close()

    def _has_due(self) -> bool:
        due = self.store.outbox.due(now=time.time(), limit=1, slots=self.fences())
        return bool(due)

    def _count(self, outcome: str) -> None:
        self._n_failed_records += outcome == "error"

    def commit(self, updates: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        self._interrupt()
        return self.store.run_log.commit(updates, fences=fences)

    def fences(self) -> Fences | None:
        self._interrupt()
        return {} if self.is_lapsed else self.held

    def interrupt(self, interruption: Callable[[], None], *, after_calls: int) -> None:
        """Do something else first at a later commit, or look at the owned slots."""
        self._interruptions = [*([_nothing] * after_calls), interruption]

    def _interrupt(self) -> None:
        if self._interruptions:
            self._interruptions.pop(0)()


class System:
    """A database with its service and its workers: two over PostgreSQL, one over SQLite."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.inbox = Inbox()
        self._observed = engines_of(url)
        self._clear()
        self.service = Store.open(url)
        self.workers = [self._worker(name) for name in (("one", "two") if is_shared(url) else ("one",))]

    def _clear(self) -> None:
        self._execute("DELETE FROM fault")
        with self._observed.writing.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(table.delete())

    def _worker(self, name: str) -> Worker:
        if not is_shared(self.url):
            return Worker(self.service, None)
        store = Store.open(self.url)
        return Worker(store, store.leases(name, lease_seconds=10.0))

    def close(self) -> None:
        for store in {self.service, *(worker.store for worker in self.workers)}:
            store.close()
        self._observed.dispose()

    def restart_service(self) -> None:
        """Close the service and open another; over SQLite its worker ends with it."""
        self.service.close()
        self.service = Store.open(self.url)
        for worker in self.workers:
            if worker.leases is None:
                worker.store = self.service
                worker.kill()

    def send(self, message: PreparedMessage, *, now: float) -> WriteResult:
        """Store a message and return its acknowledgement; raises what the service would answer with an error."""
        [future] = self.service.reports.append([message], now=now)
        return future.result(timeout=30)

    def expire(self, worker: Worker) -> None:
        """Let a worker's leases expire, as if it had been paused for long; its scheduler does not know yet."""
        with self._observed.writing.begin() as connection:
            for table, values in ((tables.lease, {"expires_at": 0.0}), (tables.worker, {"seen_at": 0.0})):
                connection.execute(table.update().where(table.c.holder == worker.leases._holder).values(values))
        worker.is_lapsed = True

    @contextmanager
    def failing_commits(self) -> Iterator[None]:
        """Make every commit fail that stores a report, closes a batch or records a delivery."""
        self.fail_commits()
        try:
            yield
        finally:
            self._execute("DELETE FROM fault")

    @contextmanager
    def unrecorded_deliveries(self) -> Iterator[None]:
        """Make every commit fail from the moment at which the receiver takes a notification."""
        self.inbox.after_taking = self.fail_commits
        try:
            yield
        finally:
            self.inbox.after_taking = _nothing
            self._execute("DELETE FROM fault")

    def fail_commits(self) -> None:
        self._execute("INSERT INTO fault VALUES (1)")

    def _execute(self, statement: str) -> None:
        with self._observed.writing.begin() as connection:
            connection.execute(text(statement))

    def stored_reports(self, run_id: int) -> dict[int, tuple[Batch, bytes]]:
        """Return what another connection sees of the run's reports: batch and digest by id."""
        table = tables.report.c
        found = select(table.id, table.attempt_id, table.step, table.digest).where(table.run_id == run_id)
        with self._observed.reader.connect() as connection:
            return {row.id: (Batch(row.attempt_id, row.step), row.digest) for row in connection.execute(found)}

    def rows(self, run_id: int) -> list[ClosedRow]:
        return [
            ClosedRow(row.ordinal, Batch(row.key.attempt_id, row.key.step), row.n_sequences, row.complete, row.revised)
            for row in self.service.run_log.batches_after(run_id, 0, limit=1000)
        ]

    def written(self, run_id: int) -> str:
        """Return all that a worker writes about a run's batches and how far it has read."""
        log = self.service.run_log
        return repr((log.batches_after(run_id, 0, limit=1000), log.progress(run_id)))

    def changes(self, run_id: int) -> list[Change]:
        """Return the transitions of the run's alert, oldest first."""
        table = tables.alert_event.c
        found = select(table.attempt_id, table.step, table.state).where(table.run_id == run_id).order_by(table.id)
        with self._observed.reader.connect() as connection:
            return [Change(*row) for row in connection.execute(found)]

    def deliveries(self, run_id: int) -> dict[Change, tuple[str, str]]:
        """Return the dedup key and the state of the run's deliveries, by the change that each notifies of."""
        table = tables.delivery.c
        found = select(table.dedup_key, table.state).where(table.run_id == run_id).order_by(table.id)
        with self._observed.reader.connect() as connection:
            rows = connection.execute(found).all()
        told = {_change_of(row.dedup_key): (row.dedup_key, row.state) for row in rows}
        assert len(told) == len(rows), "a change has one delivery"
        return told


def _nothing() -> None:
    pass


def _change_of(dedup_key: str) -> Change:
    attempt_id, step, state = dedup_key.split(":")[-3:]
    return Change(int(attempt_id), int(step), state)
