"""The adaptation settings of runs."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import asdict, replace

from sqlalchemy import Engine, select

from trmon.domain.adaptation.adaptation_setting import AdaptationMode, AdaptationSetting
from trmon.domain.model.access import EVERYTHING, Access
from trmon.store.database.upsert import upsert
from trmon.store.rows.run_rows import visible_runs
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
        return (
            AdaptationSetting()
            if stored is None
            else replace(AdaptationSetting(**stored), mode=AdaptationMode(stored["mode"]))
        )

    def put(self, run_id: int, setting: AdaptationSetting, *, author: str, now: float) -> Future[None]:
        """Write the setting of a run."""
        row = {
            "run_id": run_id,
            "setting": asdict(setting) | {"mode": setting.mode.value},
            "author": author,
            "changed_at": now,
        }

        def write(transaction: Transaction) -> None:
            upsert(transaction.connection, tables.adaptation, key=("run_id",), rows=[row])
            transaction.mark_edited(run_id)

        return self._writer.submit(write, run=run_id)
