"""The adaptation settings of runs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, select

from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.model.access import EVERYTHING, Access, AuditAction
from trmon.store.database.upsert import upsert
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.run_rows import read_run, visible_runs
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction


class Adaptations:
    """Reads and writes adaptation settings with their authors."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def get(self, run_id: int, *, access: Access = EVERYTHING) -> AdaptationSetting:
        """Return the setting of a run; off if none was set."""
        table = tables.adaptation
        found = select(table.c.setting).join(tables.run).where(table.c.run_id == run_id, visible_runs(access))
        with self._reader.connect() as connection:
            stored = connection.scalar(found)
        return AdaptationSetting() if stored is None else setting_from_document(stored)

    def put(self, run_id: int, setting: AdaptationSetting, *, access: Access, now: float) -> Future[None]:
        """Write the setting of a run."""
        document = asdict(setting) | {"mode": setting.mode.value}
        row = {"run_id": run_id, "setting": document, "author": access.name, "changed_at": now}

        def write(transaction: Transaction) -> None:
            connection = transaction.connection
            run = read_run(connection, tables.run.c.id == run_id, name=str(run_id), access=access)
            before = connection.scalar(select(tables.adaptation.c.setting).where(tables.adaptation.c.run_id == run_id))
            write_audit(
                connection,
                access,
                AuditAction.ADAPTATION_CHANGE,
                at=now,
                target=str(run.key),
                project=run.key.project,
                before=before,
                after=document,
            )
            upsert(transaction.connection, tables.adaptation, key=("run_id",), rows=[row])
            transaction.mark_edited(run_id)

        return self._writer.submit(write, run=run_id)


def setting_from_document(document: Mapping[str, Any]) -> AdaptationSetting:
    """Return a stored setting. Errors: TypeError, ValueError."""
    return AdaptationSetting(**{**document, "mode": AdaptationMode(document["mode"])})
