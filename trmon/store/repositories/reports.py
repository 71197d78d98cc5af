"""Reports and notices: durable when acknowledged, and read in the order of their arrival."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Engine, Select, Table, bindparam, select

from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import (
    AnyNotice,
    AnyReport,
    PreparedMessage,
    Unread,
    WriteResult,
)
from trmon.domain.state.run_update import Frontier
from trmon.store.database.newer_rows import is_moved
from trmon.store.database.postgres import BINARY
from trmon.store.registry.registry_entries import ArrivedMessage
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.repositories.attempt_places import AttemptPlaces
from trmon.store.repositories.message_insert import insert_messages
from trmon.store.rows.message_rows import stored_report, unread_notice, unread_report
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

FLUSH_SECONDS = 10.0
"""How long heartbeats may stay in memory before they are written."""


class Reports:
    """Writes and reads the messages of trainers."""

    def __init__(
        self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry, places: AttemptPlaces, is_alone: bool
    ) -> None:
        """Args: is_alone: no other process needs heartbeats, so they may stay in memory for a while."""
        self._is_alone = is_alone
        self._places = places
        self._reader = reader
        self._writer = writer
        self._registry = registry
        self._flushed_at = 0.0

    def append(self, messages: Sequence[PreparedMessage], *, now: float) -> list[Future[WriteResult]]:
        """Queue messages in order; each future resolves when its message is on disk.

        Args: messages: all kinds but heartbeats; now: their arrival time, seconds on the server's clock.
        Errors: Overloaded, then none is queued.
        """
        arrivals = [ArrivedMessage(key=prepared.key, message=prepared.message, at=now) for prepared in messages]
        return self._writer.submit_each(self._store, [(prepared, now) for prepared in messages], runs=arrivals)

    def touch(self, arrivals: Sequence[ArrivedMessage]) -> None:
        """Record heartbeats with the next messages, or in a second. Errors: Overloaded.

        If no other process needs them, they are written at most every 10 seconds.
        """
        self._writer.submit_each(self._touch, arrivals, runs=arrivals, is_patient=True)

    def flush(self) -> None:
        """Queue the write of heartbeats that are in memory, if any. Errors: NotReady after close."""
        if self._registry.pending or not self._writer.is_empty:
            self._writer.submit(lambda transaction: self._registry.flush(transaction.connection))

    def unread_of(self, run_id: int, read: Frontier, *, limit: int) -> Unread:
        """Return the run's messages after its frontier, of one instant; at most `limit` reports and `limit` notices."""
        of_run = {"of_run": run_id, "limit": limit}
        with self._reader.connect() as connection:
            notices = connection.execute(_NEWER_NOTICES, {**of_run, "after": read.notice_id}).all()
            reports = connection.execute(_NEWER_REPORTS, {**of_run, "after": read.report_id}).all()
        return Unread(notices=[unread_notice(row) for row in notices], reports=[unread_report(row) for row in reports])

    def of_batch(self, key: BatchKey) -> list[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""
        given = {"attempt": key.attempt_id, "of_step": key.step, "update": key.update}
        return self._places.read(
            key.attempt_id,
            stored=lambda connection: [stored_report(row) for row in connection.execute(_OF_BATCH, given).all()],
            moved=lambda lake: lake.reports(key),
        )

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> list[AnyNotice]:
        """Return the run's notices with a larger id, oldest first."""
        given = {"of_run": run_id, "after": notice_id, "limit": limit}
        with self._reader.connect() as connection:
            rows = connection.execute(_NEWER_NOTICES, given).all()
        return [unread_notice(row) for row in rows]

    def _store(self, transaction: Transaction, items: Sequence[tuple[PreparedMessage, float]]) -> list[WriteResult]:
        return insert_messages(transaction, self._registry, items=items)

    def _touch(self, transaction: Transaction, arrivals: Sequence[ArrivedMessage]) -> list[None]:
        for arrival in arrivals:
            self._registry.touch(transaction.connection, arrival)
        newest = max(arrival.at for arrival in arrivals)
        if not self._is_alone or newest - self._flushed_at >= FLUSH_SECONDS:
            self._registry.flush(transaction.connection)
            self._flushed_at = newest
        return [None] * len(arrivals)


def _newer(table: Table) -> Select[Any]:
    """Return the query for the next rows of a run; it is built once, since building takes longer than running it."""
    newer = select(table, is_moved(table)).where(table.c.run_id == bindparam("of_run"), table.c.id > bindparam("after"))
    return newer.order_by(table.c.id).limit(bindparam("limit"))


def _of_batch() -> Select[Any]:
    table = tables.report.c
    wanted = {table.attempt_id: "attempt", table.step: "of_step", table.update_index: "update"}
    found = select(tables.report).where(*(column == bindparam(name) for column, name in wanted.items()))
    return found.order_by(table.rank, table.chunk)


_OF_BATCH = _of_batch().execution_options(**{BINARY: True})
_NEWER_REPORTS = _newer(tables.report).execution_options(**{BINARY: True})
_NEWER_NOTICES = _newer(tables.notice)
