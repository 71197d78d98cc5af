"""One attempt of a lake batch: what it is called, and which of its messages the batch moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from trmon.store.rows.row_mapping import RowMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeMember:
    """An attempt of a lake batch; the batch moves the messages after and up to these ids.

    `is_late`: the attempt moved before, and only messages that arrived since then are moved. `since` and `until` are
    the seconds between which rows of the run that name no attempt belong to it.
    """

    project: str
    run_id: int
    run: str
    attempt_id: int
    attempt: str
    is_late: bool
    after_report_id: int
    report_id: int
    after_notice_id: int
    notice_id: int
    since: float
    until: float


LAKE_MEMBER_MAPPING = RowMapping(LakeMember)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeBatch:
    """A numbered set of attempts that move together; their `n_reports` reports have `n_bytes` in the database."""

    id: int
    database_id: str
    planned_at: float
    n_reports: int
    n_bytes: int
    members: Sequence[LakeMember]

    @property
    def month(self) -> str:
        """The month in which it was planned, YYYY-MM in UTC."""
        return month_of(self.planned_at)

    @property
    def app_id(self) -> str:
        """The name under which the tables of the lake record the newest batch of this database."""
        return app_id_of(self.database_id)

    def front(self, member: LakeMember) -> dict[str, Any]:
        """Return the values of the first columns for the rows of a member."""
        return {
            "project": member.project,
            "month": self.month,
            "database_id": self.database_id,
            "lake_batch_id": self.id,
            "run_id": member.run_id,
            "run": member.run,
            "attempt_id": member.attempt_id,
            "attempt": member.attempt,
        }


def month_of(at: float) -> str:
    """Return the month of a time in seconds, YYYY-MM in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m")


def app_id_of(database_id: str) -> str:
    """Return the id under which a database commits to the lake."""
    return f"trmon/{database_id}"
