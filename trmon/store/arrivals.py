"""What came lately, of all runs: for workers that no commit in their own process wakes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Engine, Table, func, select

from trmon.store import schema


class Kind(Enum):
    """What came."""

    REPORT = "report"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Came:
    """The newest message of a kind that came of a run."""

    run_id: int
    kind: Kind
    id: int


Mark = dict[Kind, int]
"""The newest id of each kind at one moment."""
_TABLES: dict[Kind, Table] = {Kind.REPORT: schema.report, Kind.NOTICE: schema.notice}


class Arrivals:
    """Reports and notices by their ids.

    Ids of different runs become visible in any order, so whoever asks what came after a mark must ask again, for as
    long as a transaction may last, after the same one.
    """

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def mark(self) -> Mark:
        """Return the newest ids."""
        with self._reader.connect() as connection:
            return {kind: connection.scalar(select(func.max(table.c.id))) or 0 for kind, table in _TABLES.items()}

    def after(self, mark: Mark) -> list[Came]:
        """Return the newest message of each run and kind that came after a mark."""
        with self._reader.connect() as connection:
            return [
                Came(row[0], kind, row[1])
                for kind, table in _TABLES.items()
                for row in connection.execute(_newest(table, mark[kind]))
            ]


def _newest(table: Table, after: int) -> Any:
    newer = select(table.c.run_id, func.max(table.c.id)).where(table.c.id > after)
    return newer.group_by(table.c.run_id)
