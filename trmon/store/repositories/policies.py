"""The policy versions of runs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from trmon.domain.model.access import EVERYTHING, Access
from trmon.domain.policies.policy_version import PolicyVersion, default_version
from trmon.store.repositories.keyset_page import Page, decode_cursor, page_of
from trmon.store.rows.run_rows import read_run, visible_runs
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction
from trmon_client.core.policies.acceptance import Policy


class Policies:
    """Which policy a run is judged by, and which ones it had; versions are only ever added."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def current(self, run_id: int, *, access: Access = EVERYTHING) -> PolicyVersion:
        """Return the newest version, the default one if none was ever set. Errors: NotFound for no such run."""
        table = tables.policy_version.c
        newest = select(tables.policy_version).where(table.run_id == run_id).order_by(table.id.desc()).limit(1)
        with self._reader.connect() as connection:
            run = read_run(connection, tables.run.c.id == run_id, name=str(run_id), access=access)
            row = connection.execute(newest).one_or_none()
        return default_version(now=run.created_at) if row is None else policy_version_from_row(row)

    def history(self, run_id: int, *, access: Access = EVERYTHING) -> list[PolicyVersion]:
        """Return every version that was set, oldest first."""
        table = tables.policy_version
        found = select(table).join(tables.run).where(table.c.run_id == run_id, visible_runs(access))
        with self._reader.connect() as connection:
            return [policy_version_from_row(row) for row in connection.execute(found.order_by(table.c.id))]

    def list(self, run_id: int, *, access: Access, after: str | None = None, limit: int = 50) -> Page[PolicyVersion]:
        """Return the versions a run's policy had, newest first; the last one is what every run begins with.

        Errors: NotFound for no such run; InvalidInput for a cursor that is none.
        """
        table = tables.policy_version.c
        found = select(tables.policy_version).where(table.run_id == run_id).order_by(table.id.desc()).limit(limit + 1)
        if after is not None:
            found = found.where(table.id < decode_cursor(after, length=1)[0])
        with self._reader.connect() as connection:
            run = read_run(connection, tables.run.c.id == run_id, name=str(run_id), access=access)
            versions = [(row.id, policy_version_from_row(row)) for row in connection.execute(found)]
        if len(versions) <= limit:
            versions.append((0, default_version(now=run.created_at)))
        shown = page_of(versions, limit=limit, key=lambda version: version[:1])
        return Page(tuple(version for _, version in shown.items), shown.next)

    def put(self, run_id: int, version: PolicyVersion) -> Future[None]:
        """Make a version the current one."""

        def add(transaction: Transaction) -> None:
            write_policy(transaction.connection, run_id, version=version)
            transaction.edit(run_id)

        return self._writer.submit(add, run=run_id)


def write_policy(connection: Connection, run_id: int, *, version: PolicyVersion) -> None:
    """Add a version to a run's; a controller's only in the place of the one that it rests on.

    A person may have put another in force, or pinned it, since the controller looked.
    """
    if version.is_adapted and not _is_awaited(connection, run_id, version.evidence["replaces"]):
        return
    row = {
        "run_id": run_id,
        "hash": version.policy.hash,
        "policy": version.policy.spec(),
        "shadows": [shadow.spec() for shadow in version.shadows],
        "author": version.author,
        "reason": version.reason,
        "created_at": version.created_at,
        "from_step": version.from_step,
        "pinned": version.pinned,
        "evidence": dict(version.evidence),
    }
    connection.execute(insert(tables.policy_version), row)


def _is_awaited(connection: Connection, run_id: int, replaces: str) -> bool:
    table = tables.policy_version.c
    newest = select(table.hash, table.pinned).where(table.run_id == run_id).order_by(table.id.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    if row is None:
        return replaces == default_version(now=0.0).policy.hash
    return row.hash == replaces and not row.pinned


def policy_version_from_row(row: Any) -> PolicyVersion:
    """Return a policy version from its row."""
    return PolicyVersion(
        policy=Policy.parse(row.policy),
        shadows=tuple(Policy.parse(shadow) for shadow in row.shadows),
        author=row.author,
        reason=row.reason,
        created_at=row.created_at,
        from_step=row.from_step,
        pinned=row.pinned,
        evidence=row.evidence,
    )
