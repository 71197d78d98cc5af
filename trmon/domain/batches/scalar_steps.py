"""Scalars of trainers, and the steps of which only scalars came, which close without sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field

from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice, StoredReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarStep:
    """A step that closes with scalars alone: its values, the ranks that sent them, and when its trainer made it.

    `made_at` is on the trainer's clock, None if no message states a time, as those of a log without times; `newest_at`
    is the arrival of its newest scalars on the server's.
    """

    key: BatchKey
    values: dict[str, float]
    ranks: frozenset[int]
    made_at: float | None
    newest_at: float


@dataclass(frozen=True, slots=True)
class ScalarSteps:
    """The steps of pending scalars that may close without any report, and what is known of their attempts.

    `reporting` are the attempts that have sent a report. `is_rank_ended` says whether a rank of an attempt has ended,
    `folded` is the newest closed batch. If `has_ended`, nothing more is expected of the run. `grace_seconds` is
    infinite while messages are unread; it counts no earlier than from `watching_since`.
    """

    pending: PendingScalars
    _: KW_ONLY
    reporting: Collection[int]
    is_rank_ended: Callable[[int, int], bool]
    folded: BatchKey | None
    has_ended: bool
    grace_seconds: float
    watching_since: float

    def due(self, now: float) -> list[ScalarStep]:
        """Return the steps that close now, in order within each attempt.

        A step closes once each rank that sent scalars of it has sent those of a later step or has ended, or a later
        attempt has begun, and else after the grace period, if scalars without reports are what the attempt sends.
        """
        found = []
        last_attempt = max(self.pending.steps(), default=0)
        for attempt_id, steps in self._candidates():
            newest = self.pending.newest_steps(attempt_id)
            for step in steps:
                notices = self.pending.notices(attempt_id, step)
                ranks = {notice.message.rank for notice in notices}
                has_passed = self.has_ended or all(
                    newest[rank] > step or self.is_rank_ended(attempt_id, rank) for rank in ranks
                )
                is_due = has_passed or attempt_id < last_attempt
                if not is_due and self._waits_until(attempt_id, step, newest=newest) > now:
                    break
                found.append(self._closed(attempt_id, step, notices))
        return found

    def due_at(self) -> float:
        """Return when the first step closes by the clock; infinity: none does."""
        first = (
            self._waits_until(attempt_id, steps[0], newest=self.pending.newest_steps(attempt_id))
            for attempt_id, steps in self._candidates()
        )
        return min(first, default=math.inf)

    def _candidates(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the attempts without reports, and their steps that are not closed."""
        folded = self.folded
        for attempt_id, steps in self.pending.steps().items():
            if attempt_id in self.reporting:
                continue
            new = [step for step in steps if folded is None or BatchKey(attempt_id, step, None).order > folded.order]
            if new:
                yield attempt_id, new

    def _waits_until(self, attempt_id: int, step: int, *, newest: Mapping[int, int]) -> float:
        folded = self.folded
        is_known = folded is not None and folded.attempt_id == attempt_id
        if not is_known and max(newest.values()) <= step:
            return math.inf  # its report may still come
        newest_at = max(notice.received_at for notice in self.pending.notices(attempt_id, step))
        return max(newest_at, self.watching_since) + self.grace_seconds

    def _closed(self, attempt_id: int, step: int, notices: Collection[StoredNotice]) -> ScalarStep:
        return ScalarStep(
            key=BatchKey(attempt_id, step, None),
            values=self.pending.of(attempt_id, step),
            ranks=frozenset(notice.message.rank for notice in notices),
            made_at=min((notice.message.sent_at for notice in notices if notice.message.sent_at), default=None),
            newest_at=max(notice.received_at for notice in notices),
        )
