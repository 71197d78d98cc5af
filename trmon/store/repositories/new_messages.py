"""Find new messages of all runs, for workers that share the database with other processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Engine, Select, Table, bindparam, func, select

from trmon.store.schema import tables


class MessageKind(Enum):
    """The kinds of messages."""

    REPORT = "report"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """The newest message of a kind of a run."""

    run_id: int
    kind: MessageKind
    id: int


MessageCursor = dict[MessageKind, int]
"""The newest id of each kind at one time."""
_TABLES: dict[MessageKind, Table] = {MessageKind.REPORT: tables.report, MessageKind.NOTICE: tables.notice}


class NewMessages:
    """Reads reports and notices by id.

    Ids of different runs become visible in any order: callers must read from the same cursor again for as long as a
    transaction may last.
    """

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def newest(self) -> MessageCursor:
        """Return the newest ids."""
        with self._reader.connect() as connection:
            ids = connection.execute(_NEWEST_IDS).one()
        return {kind: id_ or 0 for kind, id_ in zip(_TABLES, ids, strict=True)}

    def after(self, cursor: MessageCursor) -> list[NewMessage]:
        """Return the newest message of each run and kind after a cursor."""
        with self._reader.connect() as connection:
            return [
                NewMessage(run_id, kind, id_)
                for kind, newest in _NEWEST_OF_RUNS.items()
                for run_id, id_ in connection.execute(newest, {"after": cursor[kind]})
            ]


def _newest_of_runs(table: Table) -> Select[Any]:
    newer = select(table.c.run_id, func.max(table.c.id)).where(table.c.id > bindparam("after"))
    return newer.group_by(table.c.run_id)


_NEWEST_IDS = select(*(select(func.max(table.c.id)).scalar_subquery() for table in _TABLES.values()))
_NEWEST_OF_RUNS = {kind: _newest_of_runs(table) for kind, table in _TABLES.items()}
