"""Trainer scalars that came in messages of their own: they wait here for their step's batches to close."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice, StoredReport
from trmon_client.core import wire


@dataclass(slots=True)
class PendingScalars:
    """The scalars messages of steps that may still close a batch, by (attempt, step)."""

    _waiting: dict[tuple[int, int], list[StoredNotice]] = field(default_factory=dict)

    def put(self, notice: StoredNotice, *, step: int) -> None:
        """Keep a scalars message for its step."""
        self._waiting.setdefault((notice.attempt_id, step), []).append(notice)

    def of(self, attempt_id: int, step: int) -> dict[str, float]:
        """Return the scalars of a step as they stand: a lower rank's outweigh a higher one's, newer ones older ones."""
        notices = sorted(self._waiting.get((attempt_id, step), ()), key=lambda n: (-n.message.rank, n.id))
        return {
            name: value
            for notice in notices
            if isinstance(notice.message, wire.Scalars)
            for name, value in scalar_numbers(notice.message.values).items()
        }

    def forget_before(self, newest: BatchKey, *, keeping: Collection[int]) -> None:
        """Drop what waits for steps before the newest: they are closed, except in attempts that have open batches."""
        for attempt_id, step in list(self._waiting):
            older_attempt = attempt_id < newest.attempt_id and attempt_id not in keeping
            if older_attempt or (attempt_id == newest.attempt_id and step < newest.step):
                del self._waiting[attempt_id, step]

    def oldest_id(self) -> int | None:
        """Return the smallest id of a waiting message."""
        return min((notice.id for notices in self._waiting.values() for notice in notices), default=None)


def scalars_of_reports(reports: tuple[StoredReport, ...]) -> dict[str, float]:
    """Return the scalars in a batch's own reports: rank 0's outweigh the others', later chunks earlier ones."""
    ordered = sorted(reports, key=lambda report: (-report.key.rank, report.key.chunk))
    return {name: value for report in ordered for name, value in scalar_numbers(report.report.scalars).items()}


def scalar_numbers(scalars: dict[str, wire.JsonNumber]) -> dict[str, float]:
    """Return wire numbers as floats; null is NaN."""
    return {name: wire.wire_number(value) for name, value in scalars.items()}
