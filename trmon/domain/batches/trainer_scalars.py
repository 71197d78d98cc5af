"""Scalars that the trainer sends in separate messages, kept until the batches of their step close."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice, StoredReport
from trmon_client.core import wire


@dataclass(slots=True)
class PendingScalars:
    """The scalars messages of steps whose batches may still close, by (attempt, step)."""

    _pending: dict[tuple[int, int], list[StoredNotice]] = field(default_factory=dict)

    def add(self, notice: StoredNotice, *, step: int) -> None:
        """Add a scalars message of a step."""
        self._pending.setdefault((notice.attempt_id, step), []).append(notice)

    def of(self, attempt_id: int, step: int) -> dict[str, float]:
        """Return the scalars of a step: lower ranks take precedence over higher ones, newer values over older ones."""
        notices = sorted(self._pending.get((attempt_id, step), ()), key=lambda n: (-n.message.rank, n.id))
        return {
            name: value
            for notice in notices
            if isinstance(notice.message, wire.Scalars)
            for name, value in scalar_numbers(notice.message.values).items()
        }

    def notices(self, attempt_id: int, step: int) -> list[StoredNotice]:
        """Return the messages of a step in the order in which they came."""
        return list(self._pending.get((attempt_id, step), ()))

    def steps(self) -> dict[int, list[int]]:
        """Return the pending steps of each attempt, in order."""
        found: dict[int, list[int]] = {}
        for attempt_id, step in sorted(self._pending):
            found.setdefault(attempt_id, []).append(step)
        return found

    def newest_steps(self, attempt_id: int) -> dict[int, int]:
        """Return the newest pending step of each rank of an attempt."""
        newest: dict[int, int] = {}
        for (attempt, step), notices in self._pending.items():
            for notice in notices if attempt == attempt_id else ():
                newest[notice.message.rank] = max(step, newest.get(notice.message.rank, step))
        return newest

    def forget_before(self, newest: BatchKey, *, keeping: Collection[int]) -> None:
        """Delete the messages of closed steps: those before the newest one, except in attempts with open batches."""
        for attempt_id, step in list(self._pending):
            older_attempt = attempt_id < newest.attempt_id and attempt_id not in keeping
            if older_attempt or (attempt_id == newest.attempt_id and step < newest.step):
                del self._pending[attempt_id, step]

    def oldest_id(self) -> int | None:
        """Return the smallest id of a pending message; None without any."""
        return min((notice.id for notices in self._pending.values() for notice in notices), default=None)


def scalars_of_reports(reports: tuple[StoredReport, ...]) -> dict[str, float]:
    """Return the scalars in the reports of a batch: lower ranks take precedence, then later chunks."""
    ordered = sorted(reports, key=lambda report: (-report.key.rank, report.key.chunk))
    return {name: value for report in ordered for name, value in scalar_numbers(report.report.scalars).items()}


def scalar_numbers(scalars: dict[str, wire.JsonNumber]) -> dict[str, float]:
    """Return wire numbers as floats; null becomes NaN."""
    return {name: wire.wire_number(value) for name, value in scalars.items()}
