"""Reports and notices: inserted once, durable when acknowledged, and read in the order of their arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Engine, ScalarSelect, Select, Table, bindparam, func, or_, select

from trmon.domain.identity import BatchKey
from trmon.domain.messages import (
    AnyNotice,
    AnyReport,
    NewestMessage,
    PreparedMessage,
    Unread,
    WriteOutcome,
    WriteResult,
)
from trmon.domain.pipeline.publish import Frontier
from trmon.store.database.postgres import BINARY
from trmon.store.database.upsert import Row, insert_new_ids, rows_by_key
from trmon.store.registry import ArrivedMessage, AttemptEntry, RunRegistry
from trmon.store.repositories.attempt_places import AttemptPlaces
from trmon.store.rows import messages
from trmon.store.rows.messages import is_moved, stored_report, unread_notice, unread_report
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.repository import Reader, Repository
from trmon.store.writing.transaction import Transaction
from trmon_client.core import wire

IsSame = Callable[[bytes, bytes], bool]
"""Whether two payloads have the same content."""


def insert_once(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row], is_same: IsSame
) -> list[tuple[WriteOutcome, Row]]:
    """Insert rows whose key is new, and return for each row the outcome and the stored row with its id.

    Rows of one call may share a key: the first is stored, and the others are compared with it. Rows with the same
    `digest` are equal, and those whose payloads are the same.
    """
    identity = itemgetter(*key)
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(identity(row), row)
    new = insert_new_ids(connection, table, key=key, rows=list(first.values()))
    stored = {found: {**row, "id": new[found]} for found, row in first.items() if found in new}
    stored |= rows_by_key(connection, table, key=key, values=[value for value in first if value not in new])
    return [
        (_outcome(row, stored[found], new=found in new and row is first[found], is_same=is_same), stored[found])
        for row, found in zip(rows, map(identity, rows), strict=True)
    ]


def _outcome(row: Row, stored: Row, *, new: bool, is_same: IsSame) -> WriteOutcome:
    if new:
        return WriteOutcome.STORED
    # Another version of the service computes other digests of equal content.
    is_equal = row["digest"] == stored["digest"] or is_same(row["payload"], stored["payload"])
    return WriteOutcome.DUPLICATE if is_equal else WriteOutcome.CONFLICT


def _insert_kind(
    connection: Connection, rows: Sequence[Row], *, indices: Sequence[int], notices: bool
) -> dict[int, WriteResult]:
    table, key = (tables.notice, tables.NOTICE_KEY) if notices else (tables.report, tables.REPORT_KEY)
    is_same = messages.is_same_notice if notices else messages.is_same_report
    found = insert_once(connection, table, key=key, rows=[rows[i] for i in indices], is_same=is_same)
    return {
        i: WriteResult(
            status=status,
            id=stored["id"],
            run_id=stored["run_id"],
            attempt_id=stored["attempt_id"],
            accepted=stored.get("accepted", b""),
        )
        for i, (status, stored) in zip(indices, found, strict=True)
    }


def _row(prepared: PreparedMessage, attempt: AttemptEntry, *, at: float) -> Row:
    message = prepared.message
    row = {
        "run_id": attempt.run_id,
        "attempt_id": attempt.id,
        "rank": message.rank,
        "received_at": at,
        "digest": prepared.digest,
        "payload": prepared.payload,
    }
    if isinstance(message, wire.Report):
        return row | {
            "step": message.step,
            "update_index": message.update,
            "chunk": message.chunk,
            "n_sequences": prepared.n_sequences,
            "n_tokens": prepared.n_tokens,
            "payload_bytes": len(prepared.payload),
            "accepted": prepared.accepted,
        }
    if isinstance(message, wire.Heartbeat):
        raise TypeError("heartbeats are recorded with touch(), not stored")
    kind = type(message).__name__.lower()
    return row | {"kind": kind, "launch": message.launch, "sequence": message.sequence}


FLUSH_SECONDS = 10.0
"""How long heartbeats may stay in memory before they are written."""


class Reports(Repository):
    """Writes and reads the messages of trainers."""

    def __init__(
        self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry, places: AttemptPlaces, is_alone: bool
    ) -> None:
        """Args: is_alone: no other process needs heartbeats, so they may stay in memory for a while."""
        super().__init__(reader, writer)
        self._is_alone = is_alone
        self._places = places
        self._registry = registry
        self._flushed_at = 0.0

    def append(self, messages: Sequence[PreparedMessage], *, now: float) -> list[Future[WriteResult]]:
        """Queue messages in order; each future resolves when its message is on disk.

        Args: messages: all kinds but heartbeats; now: their arrival time, seconds on the server's clock.
        Errors: Overloaded, then none is queued.
        """
        arrivals = [ArrivedMessage(key=prepared.key, message=prepared.message, at=now) for prepared in messages]
        return self._writer.submit_each(self._store, list(zip(messages, arrivals, strict=True)), runs=arrivals)

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

    def newest(self, run_ids: Sequence[int]) -> dict[int, NewestMessage]:
        """Return the newest message of each run that exists."""
        found: dict[int, NewestMessage] = {}
        with self._reader.connect() as connection:
            for first in range(0, len(run_ids), RUNS_PER_QUERY):
                for row in connection.execute(_NEWEST, {"ids": run_ids[first : first + RUNS_PER_QUERY]}):
                    sent = [messages.sent_at(row.report, is_report=True)] if row.report else []
                    sent += [messages.sent_at(row.scalars, is_report=False)] if row.scalars else []
                    found[row.id] = NewestMessage(sent_at=max(sent, default=None), is_unread=row.is_unread)
        return found

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
        return [unread_notice(row) for row in self._rows(_NEWER_NOTICES, given)]

    def _store(
        self, transaction: Transaction, items: Sequence[tuple[PreparedMessage, ArrivedMessage]]
    ) -> list[WriteResult]:
        connection, registry = transaction.connection, self._registry
        rows = [_row(prepared, registry.assign(connection, arrival), at=arrival.at) for prepared, arrival in items]
        registry.flush(connection)
        reports = [i for i, (prepared, _) in enumerate(items) if isinstance(prepared.message, wire.Report)]
        notices = [i for i, (prepared, _) in enumerate(items) if not isinstance(prepared.message, wire.Report)]
        results = _insert_kind(connection, rows, indices=reports, notices=False)
        results |= _insert_kind(connection, rows, indices=notices, notices=True)
        transaction.touched.update(result.run_id for result in results.values())
        return [results[i] for i in range(len(items))]

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


RUNS_PER_QUERY = 500
"""How many runs have their newest messages read at once."""


def _newest_of_run(table: Table, column: str, *, kind: str | None = None) -> ScalarSelect[Any]:
    """Return the query for a column of a run's newest row; by a range of one run PostgreSQL reads no other run."""
    found, run_id = table.alias(), tables.run.c.id
    newest = select(found.c[column]).where(found.c.run_id.between(run_id, run_id))
    if kind is not None:
        newest = newest.where(found.c.kind == kind)
    return newest.order_by(found.c.run_id.desc(), found.c.id.desc()).limit(1).scalar_subquery()


def _newest() -> Select[Any]:
    report, notice, read = tables.report, tables.notice, tables.run_state.c
    unread = [
        func.coalesce(_newest_of_run(table, "id"), 0) > func.coalesce(id_, 0)
        for table, id_ in ((report, read.report_id), (notice, read.notice_id))
    ]
    newest = select(
        tables.run.c.id,
        _newest_of_run(report, "payload").label("report"),
        _newest_of_run(notice, "payload", kind="scalars").label("scalars"),
        or_(*unread).label("is_unread"),
    )
    joined = newest.select_from(tables.run.outerjoin(tables.run_state))
    return joined.where(tables.run.c.id.in_(bindparam("ids", expanding=True)))


_NEWEST = _newest().execution_options(**{BINARY: True})

MessageCursor = dict[str, int]
"""The newest id in each table at one time, by the table's name."""
_TABLES = (tables.report, tables.notice)


class NewMessages(Reader):
    """Reads reports and notices by id.

    Ids of different runs become visible in any order: callers must read from the same cursor again for as long as a
    transaction may last.
    """

    def newest(self) -> MessageCursor:
        """Return the newest ids."""
        [ids] = self._rows(_NEWEST_IDS)
        return {table.name: id_ or 0 for table, id_ in zip(_TABLES, ids, strict=True)}

    def after(self, cursor: MessageCursor) -> dict[tuple[int, str], int]:
        """Return the newest id of each run in each table after a cursor."""
        with self._reader.connect() as connection:
            return {
                (run_id, table): id_
                for table, newest in _NEWEST_OF_RUNS.items()
                for run_id, id_ in connection.execute(newest, {"after": cursor[table]})
            }


_NEWEST_IDS = select(*(select(func.max(table.c.id)).scalar_subquery() for table in _TABLES))
_NEWEST_OF_RUNS = {
    table.name: select(table.c.run_id, func.max(table.c.id))
    .where(table.c.id > bindparam("after"))
    .group_by(table.c.run_id)
    for table in _TABLES
}
