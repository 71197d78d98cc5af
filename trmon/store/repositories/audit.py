"""The audit log; entries are written in the transaction of the action, and never changed."""

from __future__ import annotations

from concurrent.futures import Future

from sqlalchemy import Connection, insert, select

from trmon.domain.access import Access, AuditAction, AuditDocument
from trmon.domain.identity import RunKey
from trmon.store.rows.mapping import Page, where_given
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon_client.api.administration import AuditEntryInfo


class AuditLog(Repository):
    """Reads the audit log, and records actions that have no single transaction."""

    def list(
        self,
        *,
        access: Access,
        project: str | None = None,
        actor: str | None = None,
        action: AuditAction | None = None,
        since: float | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[AuditEntryInfo]:
        """Return entries, newest first; a caller with one project sees that project's.

        Args: since: the earliest time, seconds on the server's clock.
        Errors: InvalidInput for an invalid cursor.
        """
        table = tables.audit.c
        wanted = {table.project: project, table.actor: actor, table.action: action and action.value}
        found = where_given(select(tables.audit), {table.project: access.project})
        found = where_given(found, wanted)
        if since is not None:
            found = found.where(table.at >= since)
        return self._page(found, table.id, decode=AuditEntryInfo.from_fields, after=after, limit=limit)

    def record(
        self,
        access: Access,
        action: AuditAction,
        *,
        at: float,
        target: str,
        project: str | None = None,
        after: AuditDocument | None = None,
    ) -> Future[None]:
        """Add the entry of an action that has happened."""
        return self._writer.submit(
            lambda transaction: write_audit(
                transaction.connection, access, action, target, at=at, project=project, after=after
            )
        )


def write_audit(
    connection: Connection,
    access: Access,
    action: AuditAction,
    target: RunKey | str,
    *,
    at: float,
    project: str | None = None,
    before: AuditDocument | None = None,
    after: AuditDocument | None = None,
) -> None:
    """Add an entry to the audit log in the transaction of its action; an entry on a run is one of the run's project."""
    entry = {
        "at": at,
        "actor": access.name,
        "token_id": access.token_id,
        "action": action.value,
        "project": target.project if isinstance(target, RunKey) else project,
        "target": str(target),
        "before": before,
        "after": after,
    }
    connection.execute(insert(tables.audit), entry)
