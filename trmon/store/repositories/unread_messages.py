"""The mail of many runs, read at once."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from trmon.domain.model.messages import Unread
from trmon.domain.state.run_update import Frontier
from trmon.store.database.newer_rows import newer_rows
from trmon.store.repositories.reports import stored_notice, stored_report
from trmon.store.schema import tables


def read_unread_messages(
    connection: Connection, read: Mapping[int, Frontier], *, limit: int
) -> dict[int, Unread] | None:
    """Return what came of runs beyond how far each is read; None if of either kind as many as `limit` did, or more."""
    # Notices first: every report that came before one of them is there to be read.
    notices_after = {run_id: frontier.notice_id for run_id, frontier in read.items()}
    notices = newer_rows(connection, tables.notice, notices_after, limit=limit)
    reports_after = {run_id: frontier.report_id for run_id, frontier in read.items()}
    reports = newer_rows(connection, tables.report, reports_after, limit=limit)
    if len(notices) >= limit or len(reports) >= limit:
        return None
    mail = {run_id: Unread() for run_id in read}
    for row in notices:
        mail[row.run_id].notices.append(stored_notice(row))
    for row in reports:
        mail[row.run_id].reports.append(stored_report(row))
    return mail
