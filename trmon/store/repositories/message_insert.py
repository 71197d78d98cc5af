"""Insert many messages in one transaction, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from trmon.domain.model.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.store.database.upsert import Row
from trmon.store.registry.registry_entries import ArrivedMessage, AttemptEntry
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.rows import report_codec
from trmon.store.schema import tables
from trmon.store.writing.idempotent_insert import insert_once
from trmon.store.writing.transaction import Transaction
from trmon_client.core import wire


def insert_messages(
    transaction: Transaction, registry: RunRegistry, *, items: Sequence[tuple[PreparedMessage, float]]
) -> list[WriteResult]:
    """Insert messages with their arrival times, and return the results in order."""
    connection = transaction.connection
    rows = [_row(prepared, registry.assign(connection, _arrival(prepared, at)), at=at) for prepared, at in items]
    registry.flush(connection)
    reports = [i for i, (prepared, _) in enumerate(items) if isinstance(prepared.message, wire.Report)]
    notices = [i for i, (prepared, _) in enumerate(items) if not isinstance(prepared.message, wire.Report)]
    results = _insert_kind(connection, rows, indices=reports, notices=False)
    results |= _insert_kind(connection, rows, indices=notices, notices=True)
    transaction.touched.update(result.run_id for result in results.values())
    return [results[i] for i in range(len(items))]


def _insert_kind(
    connection: Connection, rows: Sequence[Row], *, indices: Sequence[int], notices: bool
) -> dict[int, WriteResult]:
    table, key = (tables.notice, tables.NOTICE_KEY) if notices else (tables.report, tables.REPORT_KEY)
    is_same = report_codec.is_same_notice if notices else report_codec.is_same_report
    found = insert_once(connection, table, key=key, rows=[rows[i] for i in indices])
    return {
        i: WriteResult(
            status=_compared(status, rows[i], stored, is_same=is_same),
            id=stored["id"],
            run_id=stored["run_id"],
            attempt_id=stored["attempt_id"],
            accepted=stored.get("accepted", b""),
        )
        for i, (status, stored) in zip(indices, found, strict=True)
    }


def _compared(status: WriteOutcome, row: Row, stored: Row, *, is_same: Callable[[bytes, bytes], bool]) -> WriteOutcome:
    """Return DUPLICATE for a conflict with equal content: another version of the service computes other digests."""
    if status is WriteOutcome.CONFLICT and is_same(row["payload"], stored["payload"]):
        return WriteOutcome.DUPLICATE
    return status


def _arrival(prepared: PreparedMessage, at: float) -> ArrivedMessage:
    return ArrivedMessage(key=prepared.key, message=prepared.message, at=at)


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
