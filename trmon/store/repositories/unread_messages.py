"""Read the unread messages of many runs at once."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from trmon.domain.model.messages import Unread
from trmon.domain.state.run_update import Frontier
from trmon.store.database.newer_rows import newer_rows
from trmon.store.rows.message_rows import unread_notice, unread_report
from trmon.store.schema import tables


def read_unread_messages(
    connection: Connection, frontiers: Mapping[int, Frontier], *, limit: int
) -> dict[int, Unread] | None:
    """Return the messages of runs after their frontiers; None if there are `limit` or more reports or notices.

    Args: connection: one whose statements see the messages of one instant.
    """
    notices_after = {run_id: frontier.notice_id for run_id, frontier in frontiers.items()}
    notices = newer_rows(connection, tables.notice, notices_after, limit=limit)
    reports_after = {run_id: frontier.report_id for run_id, frontier in frontiers.items()}
    reports = newer_rows(connection, tables.report, reports_after, limit=limit)
    if len(notices) >= limit or len(reports) >= limit:
        return None
    unread = {run_id: Unread() for run_id in frontiers}
    for row in notices:
        unread[row.run_id].notices.append(unread_notice(row))
    for row in reports:
        unread[row.run_id].reports.append(unread_report(row))
    return unread
