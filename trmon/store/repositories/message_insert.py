"""Taking messages in: many at once, each stored once, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from trmon.domain.model.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.store.database.upsert import Row
from trmon.store.registry.registry_entries import ArrivedMessage, AttemptEntry
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.rows import report_codec
from trmon.store.schema import tables
from trmon.store.writing.idempotent_insert import store_once
from trmon.store.writing.transaction import Transaction
from trmon_client.core import wire


def insert_messages(
    transaction: Transaction, directory: RunRegistry, *, items: Sequence[tuple[PreparedMessage, float]]
) -> list[WriteResult]:
    """Store messages with the time they came, and return what became of each, in order."""
    connection = transaction.connection
    rows = [_row(intake, directory.place(connection, _arrival(intake, at)), at=at) for intake, at in items]
    directory.flush(connection)
    reports = [i for i, (intake, _) in enumerate(items) if isinstance(intake.message, wire.Report)]
    notices = [i for i, (intake, _) in enumerate(items) if not isinstance(intake.message, wire.Report)]
    receipts = _receipts(connection, rows, indices=reports, notices=False)
    receipts |= _receipts(connection, rows, indices=notices, notices=True)
    transaction.touched.update(receipt.run_id for receipt in receipts.values())
    return [receipts[i] for i in range(len(items))]


def _receipts(
    connection: Connection, rows: Sequence[Row], *, indices: Sequence[int], notices: bool
) -> dict[int, WriteResult]:
    table, key = (tables.notice, tables.NOTICE_KEY) if notices else (tables.report, tables.REPORT_KEY)
    found = store_once(connection, table, key=key, rows=[rows[i] for i in indices])
    return {
        i: WriteResult(
            status=status if notices else _judged_anew(status, rows[i], standing),
            id=standing["id"],
            run_id=standing["run_id"],
            attempt_id=standing["attempt_id"],
            accepted=standing.get("accepted", b""),
        )
        for i, (status, standing) in zip(indices, found, strict=True)
    }


def _judged_anew(status: WriteOutcome, row: Row, standing: Row) -> WriteOutcome:
    """What stands may have been packed by another version of the service, and has another digest then."""
    if status is WriteOutcome.CONFLICT and report_codec.is_same_report(row["payload"], standing["payload"]):
        return WriteOutcome.DUPLICATE
    return status


def _arrival(intake: PreparedMessage, at: float) -> ArrivedMessage:
    return ArrivedMessage(key=intake.key, message=intake.message, at=at)


def _row(intake: PreparedMessage, attempt: AttemptEntry, *, at: float) -> Row:
    message = intake.message
    row = {
        "run_id": attempt.run_id,
        "attempt_id": attempt.id,
        "rank": message.rank,
        "received_at": at,
        "digest": intake.digest,
        "payload": intake.payload,
    }
    if isinstance(message, wire.Report):
        return row | {
            "step": message.step,
            "update_index": message.update,
            "chunk": message.chunk,
            "n_sequences": intake.n_sequences,
            "n_tokens": intake.n_tokens,
            "payload_bytes": len(intake.payload),
            "accepted": intake.accepted,
        }
    if isinstance(message, wire.Heartbeat):
        raise TypeError("heartbeats are noted with touch(), not stored")
    kind = type(message).__name__.lower()
    return row | {"kind": kind, "launch": message.launch, "sequence": message.sequence}
