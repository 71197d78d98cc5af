"""The stored messages of rows; what cannot be decoded is a damaged message with the reason."""

from __future__ import annotations

from typing import Any

from trmon.domain.model.errors import Damaged
from trmon.domain.model.identity import BatchKey, ReportKey
from trmon.domain.model.messages import (
    AnyNotice,
    AnyReport,
    DamagedNotice,
    DamagedReport,
    StoredNotice,
    StoredReport,
)
from trmon.store.rows import report_codec

MOVED_REASON = "its attempt was moved to the lake"


def unread_report(row: Any) -> AnyReport:
    """Return the report of a row of `newer_rows`; one that arrived after its attempt moved is not decoded."""
    if not row.is_moved:
        return stored_report(row)
    key = ReportKey(BatchKey(row.attempt_id, row.step, row.update_index), row.rank, row.chunk)
    return DamagedReport(
        id=row.id, run_id=row.run_id, key=key, received_at=row.received_at, reason=MOVED_REASON, is_late=True
    )


def unread_notice(row: Any) -> AnyNotice:
    """Return the notice of a row of `newer_rows`; one that arrived after its attempt moved is not decoded."""
    if not row.is_moved:
        return stored_notice(row)
    return DamagedNotice(
        id=row.id, run_id=row.run_id, attempt_id=row.attempt_id, received_at=row.received_at, reason=MOVED_REASON
    )


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
