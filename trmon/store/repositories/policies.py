"""The policy versions of runs, and how their bounds are adapted."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import asdict

from sqlalchemy import Connection, insert, select

from trmon.domain.access import EVERYTHING, Access, AuditAction, AuditDocument
from trmon.domain.adaptation.proposal import AdaptationSetting
from trmon.domain.errors import Conflict
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.store.database.upsert import upsert
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Page, decode_cursor, page_of
from trmon.store.rows.runs import POLICY_MAPPING, read_run, setting_from_document, visible_runs
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

_version, _adaptation = tables.policy_version.c, tables.adaptation.c


class Policies(Repository):
    """The current policy of each run and its history; versions are only added."""

    def current(self, run_id: int, *, access: Access = EVERYTHING) -> PolicyVersion:
        """Return the newest version, the default one if none was set. Errors: NotFound for an unknown run."""
        with self._reader.connect() as connection:
            run = read_run(connection, run_id, access=access)
            return _current(connection, run_id, made_at=run.created_at)

    def history(self, run_id: int, *, access: Access = EVERYTHING) -> list[PolicyVersion]:
        """Return all versions that were set, oldest first."""
        found = select(tables.policy_version).join(tables.run).where(_version.run_id == run_id, visible_runs(access))
        return list(map(POLICY_MAPPING.from_row, self._rows(found.order_by(_version.id))))

    def list(self, run_id: int, *, access: Access, after: str | None = None, limit: int = 50) -> Page[PolicyVersion]:
        """Return the policy versions of a run, newest first; the last one is the default of every new run.

        Errors: NotFound for an unknown run; InvalidInput for an invalid cursor.
        """
        found = (
            select(tables.policy_version).where(_version.run_id == run_id).order_by(_version.id.desc()).limit(limit + 1)
        )
        if after is not None:
            found = found.where(_version.id < decode_cursor(after))
        with self._reader.connect() as connection:
            run = read_run(connection, run_id, access=access)
            versions = [(row.id, POLICY_MAPPING.from_row(row)) for row in connection.execute(found)]
        if len(versions) <= limit:
            versions.append((0, default_version(now=run.created_at)))
        shown = page_of(versions, limit=limit, key=lambda version: version[0])
        return Page(tuple(version for _, version in shown.items), shown.next)

    def put(
        self,
        run_id: int,
        version: PolicyVersion,
        *,
        access: Access | None = None,
        action: AuditAction = AuditAction.POLICY_CHANGE,
        replaces: str | None = None,
    ) -> Future[None]:
        """Add a version, which becomes the current one.

        Args: access: the admin who sets it, for the audit log; None for a trainer or a controller; replaces: the hash
        of the policy that must be current. Errors: Conflict if another one is.
        """

        def add(transaction: Transaction) -> None:
            connection = transaction.connection
            if replaces is not None or access is not None:
                run = read_run(connection, run_id, access=access or EVERYTHING)
                current = _current(connection, run_id, made_at=run.created_at)
                if replaces is not None and replaces != current.policy.hash:
                    raise Conflict(
                        f"the policy of {run.key} is {current.policy.name} ({current.policy.hash[:8]}) by "
                        f"{current.author} by now, not the one that this change was made from ({replaces[:8]}); "
                        "read it again"
                    )
                if access is not None:
                    before, after = _document(current), _document(version)
                    write_audit(connection, access, action, run.key, at=version.created_at, before=before, after=after)
            write_policy(connection, run_id, version=version)
            transaction.mark_edited(run_id)

        return self._writer.submit(add, run=run_id)


def _document(version: PolicyVersion) -> AuditDocument:
    return {"hash": version.policy.hash, **POLICY_MAPPING.to_row(version)}


def _current(connection: Connection, run_id: int, *, made_at: float) -> PolicyVersion:
    """Return the newest version of a run that was made at a time; the default one if none was set."""
    found = select(tables.policy_version).where(_version.run_id == run_id).order_by(_version.id.desc()).limit(1)
    row = connection.execute(found).one_or_none()
    return default_version(now=made_at) if row is None else POLICY_MAPPING.from_row(row)


def write_policy(connection: Connection, run_id: int, *, version: PolicyVersion) -> None:
    """Add a version to a run; one from a controller only if the version it was computed from is still current.

    A person may have set or pinned another version since. One from a trainer is added only if it still changes
    something: both the ingest and the runner adopt the policy of a start.
    """
    current = _current(connection, run_id, made_at=version.created_at)
    if version.is_adapted and (current.pinned or current.policy.hash != version.evidence["replaces"]):
        return
    if version.is_of_start and version_from_trainer(current, version.policy, now=version.created_at) is None:
        return
    columns = {"run_id": run_id, "hash": version.policy.hash, **POLICY_MAPPING.to_row(version)}
    connection.execute(insert(tables.policy_version), columns)


class Adaptations(Repository):
    """Reads and writes adaptation settings with their authors."""

    def get(self, run_id: int, *, access: Access = EVERYTHING) -> AdaptationSetting:
        """Return the setting of a run; off if none was set."""
        found = select(_adaptation.setting).join(tables.run).where(_adaptation.run_id == run_id, visible_runs(access))
        return next(map(setting_from_document, self._values(found)), AdaptationSetting())

    def put(self, run_id: int, setting: AdaptationSetting, *, access: Access, now: float) -> Future[None]:
        """Write the setting of a run."""
        document = asdict(setting) | {"mode": setting.mode.value}
        row = {"run_id": run_id, "setting": document, "author": access.name, "changed_at": now}

        def write(transaction: Transaction) -> None:
            connection = transaction.connection
            run = read_run(connection, run_id, access=access)
            before = connection.scalar(select(_adaptation.setting).where(_adaptation.run_id == run_id))
            action = AuditAction.ADAPTATION_CHANGE
            write_audit(connection, access, action, run.key, at=now, before=before, after=document)
            upsert(connection, tables.adaptation, key=("run_id",), rows=[row])
            transaction.mark_edited(run_id)

        return self._writer.submit(write, run=run_id)
