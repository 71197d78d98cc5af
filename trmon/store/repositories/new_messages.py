"""What came lately, of all runs: for workers that no commit in their own process wakes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Engine, Select, Table, bindparam, func, select

from trmon.store.schema import tables


class MessageKind(Enum):
    """What came."""

    REPORT = "report"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """The newest message of a kind that came of a run."""

    run_id: int
    kind: MessageKind
    id: int


Mark = dict[MessageKind, int]
"""The newest id of each kind at one moment."""
_TABLES: dict[MessageKind, Table] = {MessageKind.REPORT: tables.report, MessageKind.NOTICE: tables.notice}


class NewMessages:
    """Reports and notices by their ids.

    Ids of different runs become visible in any order, so whoever asks what came after a mark must ask again, for as
    long as a transaction may last, after the same one.
    """

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def mark(self) -> Mark:
        """Return the newest ids."""
        with self._reader.connect() as connection:
            newest = connection.execute(_NEWEST_IDS).one()
        return {kind: id_ or 0 for kind, id_ in zip(_TABLES, newest, strict=True)}

    def after(self, mark: Mark) -> list[NewMessage]:
        """Return the newest message of each run and kind that came after a mark."""
        with self._reader.connect() as connection:
            return [
                NewMessage(run_id, kind, id_)
                for kind, newest in _NEWEST_OF_RUNS.items()
                for run_id, id_ in connection.execute(newest, {"after": mark[kind]})
            ]


def _newest_of_runs(table: Table) -> Select[Any]:
    newer = select(table.c.run_id, func.max(table.c.id)).where(table.c.id > bindparam("after"))
    return newer.group_by(table.c.run_id)


_NEWEST_IDS = select(*(select(func.max(table.c.id)).scalar_subquery() for table in _TABLES.values()))
_NEWEST_OF_RUNS = {kind: _newest_of_runs(table) for kind, table in _TABLES.items()}
