"""The quotas of projects, and what the projects use."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import asdict

from sqlalchemy import BigInteger, delete, func, select

from trmon.domain.access import Access, AuditAction, Quota, QuotaUsage
from trmon.domain.identity import RunKey
from trmon.store.database.upsert import upsert
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import RowMapping, where_given
from trmon.store.rows.runs import has_name
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

_QUOTA = RowMapping(Quota)


class Quotas(Repository):
    """Reads and writes quotas; a caller with one project only sees that project's."""

    def list(self, *, access: Access) -> tuple[Quota, ...]:
        """Return the quotas by project."""
        table = tables.quota.c
        found = where_given(select(tables.quota), {table.project: access.project})
        return tuple(map(_QUOTA.from_row, self._rows(found.order_by(table.project))))

    def put(self, quota: Quota, *, access: Access, now: float) -> Future[None]:
        """Set the quota of a project; one without limits is deleted."""
        same = tables.quota.c.project == quota.project

        def write(transaction: Transaction) -> None:
            connection = transaction.connection
            stored = connection.execute(select(tables.quota).where(same)).one_or_none()
            if quota.limits():
                upsert(connection, tables.quota, key=("project",), rows=[_QUOTA.to_row(quota)])
            else:
                connection.execute(delete(tables.quota).where(same))
            write_audit(
                connection,
                access,
                AuditAction.QUOTA_CHANGE,
                quota.project,
                at=now,
                project=quota.project,
                before=None if stored is None else asdict(_QUOTA.from_row(stored)),
                after=asdict(quota) if quota.limits() else None,
            )

        return self._writer.submit(write)

    def usage(self, project: str) -> QuotaUsage:
        """Return what a project uses; reads the sizes of all its reports from an index."""
        run, report = tables.run.c, tables.report.c
        names = select(run.name).where(run.project == project)
        size = func.coalesce(func.sum(report.payload_bytes, type_=BigInteger), 0)
        sized = select(size).select_from(tables.report).join(tables.run).where(run.project == project)
        with self._reader.connect() as connection:
            return QuotaUsage(
                runs=frozenset(connection.scalars(names)), report_bytes=int(connection.scalar(sized) or 0)
            )

    def existing(self, keys: Iterable[RunKey]) -> set[RunKey]:
        """Return the runs that are stored, of some."""
        with self._reader.connect() as connection:
            return {key for key in keys if connection.scalar(select(tables.run.c.id).where(has_name(key))) is not None}
