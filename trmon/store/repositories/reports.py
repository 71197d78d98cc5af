"""Reports and notices: durable when acknowledged, and read in the order of their arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Engine, Select, Table, bindparam, select

from trmon.domain.model.errors import Damaged
from trmon.domain.model.identity import BatchKey, ReportKey
from trmon.domain.model.messages import (
    AnyNotice,
    AnyReport,
    DamagedNotice,
    DamagedReport,
    PreparedMessage,
    StoredNotice,
    StoredReport,
    WriteResult,
)
from trmon.store.database.postgres import BINARY
from trmon.store.registry.registry_entries import ArrivedMessage
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.repositories.message_insert import insert_messages
from trmon.store.rows import report_codec
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

FLUSH_SECONDS = 10.0
"""How long heartbeats may stay in memory before they are written."""


class Reports:
    """Writes and reads the messages of trainers."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry, is_alone: bool) -> None:
        """Args: is_alone: no other process needs heartbeats, so they may stay in memory for a while."""
        self._is_alone = is_alone
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
        """Record heartbeats; if no other process needs them, write at most every 10 seconds. Errors: Overloaded."""
        self._writer.submit_each(self._touch, arrivals, runs=arrivals)

    def flush(self) -> None:
        """Queue the write of heartbeats that are in memory, if any. Errors: NotReady after close."""
        if self._registry.pending or self._writer.depth:
            self._writer.submit(lambda transaction: self._registry.flush(transaction.connection))

    def after(self, run_id: int, report_id: int, *, limit: int) -> list[AnyReport]:
        """Return the run's reports with a larger id, oldest first."""
        return self._read(_NEWER_REPORTS, {"of_run": run_id, "after": report_id, "limit": limit})

    def of_batch(self, key: BatchKey) -> list[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""
        return self._read(_OF_BATCH, {"attempt": key.attempt_id, "of_step": key.step, "update": key.update})

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> list[AnyNotice]:
        """Return the run's notices with a larger id, oldest first."""
        given = {"of_run": run_id, "after": notice_id, "limit": limit}
        with self._reader.connect() as connection:
            rows = connection.execute(_NEWER_NOTICES, given).all()
        return [stored_notice(row) for row in rows]

    def _read(self, statement: Select[Any], given: Mapping[str, int | None]) -> list[AnyReport]:
        with self._reader.connect() as connection:
            rows = connection.execute(statement, given).all()
        return [stored_report(row) for row in rows]

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
    newer = select(table).where(table.c.run_id == bindparam("of_run"), table.c.id > bindparam("after"))
    return newer.order_by(table.c.id).limit(bindparam("limit"))


def _of_batch() -> Select[Any]:
    table = tables.report.c
    wanted = {table.attempt_id: "attempt", table.step: "of_step", table.update_index: "update"}
    found = select(tables.report).where(*(column == bindparam(name) for column, name in wanted.items()))
    return found.order_by(table.rank, table.chunk)


_OF_BATCH = _of_batch().execution_options(**{BINARY: True})
_NEWER_REPORTS = _newer(tables.report).execution_options(**{BINARY: True})
_NEWER_NOTICES = _newer(tables.notice)


def stored_report(row: Any) -> AnyReport:
    """Return the report of a row; a damaged one only with its key and the reason."""
    key = ReportKey(BatchKey(row.attempt_id, row.step, row.update_index), row.rank, row.chunk)
    try:
        report, columns = report_codec.unpack_report(row.payload)
    except Damaged as error:
        return DamagedReport(id=row.id, run_id=row.run_id, key=key, received_at=row.received_at, reason=str(error))
    return StoredReport(
        id=row.id,
        run_id=row.run_id,
        key=key,
        received_at=row.received_at,
        accepted=row.accepted,
        n_sequences=row.n_sequences,
        n_tokens=row.n_tokens,
        report=report,
        columns=columns,
    )


def stored_notice(row: Any) -> AnyNotice:
    """Return the notice of a row; a damaged one only with its ids and the reason."""
    ids = {"id": row.id, "run_id": row.run_id, "attempt_id": row.attempt_id, "received_at": row.received_at}
    try:
        return StoredNotice(**ids, message=report_codec.unpack_notice(row.payload))
    except Damaged as error:
        return DamagedNotice(**ids, reason=str(error))
