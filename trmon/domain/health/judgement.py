"""Verdicts on runs: their kinds and how urgent each is. Commands import it to start, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum


class Urgency(Enum):
    """How soon to investigate."""

    NOW = "now"
    SOON = "soon"
    NONE = "none"


class VerdictKind(Enum):
    """The kinds of verdicts, most urgent first."""

    ACT = "act"
    CRASHED = "crashed"
    STALLED = "stalled"
    WATCH = "watch"
    ENDED_ILL = "ended_ill"
    OUTSIDE = "outside_the_healthy_range"
    LEARNT_NOTHING = "has_learnt_nothing_yet"
    UNKNOWN = "unknown"
    TOO_FEW_ROWS = "too_few_rows_to_judge"
    NO_DRIFT_FOUND = "no_drift_found"
    TRAINING_HEALTHY = "training_healthy"
    HEALTHY = "healthy"
    FINISHED = "finished"

    @property
    def words(self) -> str:
        """The kind in words, e.g. `no drift found`."""
        return self.value.replace("_", " ")

    @property
    def urgency(self) -> Urgency:
        """How soon to investigate a run with this verdict."""
        if self in (VerdictKind.ACT, VerdictKind.CRASHED, VerdictKind.STALLED):
            return Urgency.NOW
        is_soon = self in (VerdictKind.WATCH, VerdictKind.ENDED_ILL, VerdictKind.OUTSIDE)
        return Urgency.SOON if is_soon else Urgency.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The verdict on a run, and the reason in a phrase; `since_step` is the step at which it began, if known.

    `todo` is the first action in a sentence; None if no action is needed. `is_calm` is true where nobody needs to
    investigate whatever the kind: long after the run's end, and in its first 20 steps. `cause` is the finding or rule
    that leads its problems; empty without any.
    """

    kind: VerdictKind
    why: str
    since_step: int | None = None
    todo: str | None = None
    is_calm: bool = False
    cause: str = ""

    @property
    def sentence(self) -> str:
        """The verdict in one line, e.g. `Act: staleness since step 63`."""
        return verdict_words(self.kind.words, self.why)

    @property
    def urgency(self) -> Urgency:
        """How soon to investigate."""
        return Urgency.NONE if self.is_calm else self.kind.urgency


NEEDS_YOU, TO_WATCH, ACKNOWLEDGED = "needs you", "to watch", "acknowledged"


def counted_as(kind: str, need: str) -> str:
    """Return the words under which a run is counted, the same wherever runs are; a finished run is never to watch.

    Args: kind, need: values of VerdictKind and Urgency, also those of another version.
    """
    if need == Urgency.NOW.value:
        return NEEDS_YOU
    if need == Urgency.SOON.value and kind not in (VerdictKind.ENDED_ILL.value, VerdictKind.FINISHED.value):
        return TO_WATCH
    ill = (VerdictKind.ACT, VerdictKind.CRASHED, VerdictKind.STALLED, VerdictKind.WATCH)
    return ACKNOWLEDGED if kind in [one.value for one in ill] else kind.replace("_", " ")


def verdict_words(kind: str, why: str) -> str:
    """Return a verdict in one line. Args: kind: in words; why: a phrase, or a remark in parentheses."""
    joint = " " if why.startswith("(") else ": "
    return f"{kind.capitalize()}{joint if why else ''}{why}"


BEHIND_SECONDS = 5.0
"""From how long on a delay of the judging is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The newest step received of a run, None of scalars alone, and since when a message waits for the worker."""

    newest_step: int | None
    waiting_since: float

    def joined(self, other: Backlog | None) -> Backlog:
        """Return this backlog with that of other messages of the run."""
        if other is None:
            return self
        steps = [step for step in (self.newest_step, other.newest_step) if step is not None]
        since = min(self.waiting_since, other.waiting_since)
        return Backlog(newest_step=max(steps, default=None), waiting_since=since)

    def seconds(self, now: float) -> float:
        """Return how far the judging is behind what was received."""
        return max(0.0, now - self.waiting_since)

    def is_late(self, now: float) -> bool:
        """Whether the judging is so far behind that it is said."""
        return self.seconds(now) > BEHIND_SECONDS

    def words(self, judged_step: int | None, *, now: float) -> str:
        """Return e.g. `judged to step 98 of 140, 37 s behind`."""
        newest = "" if self.newest_step is None else f" of {self.newest_step:,}"
        judged = f"no step{newest} judged yet" if judged_step is None else f"judged to step {judged_step:,}{newest}"
        return f"{judged}, {duration(self.seconds(now))} behind"


def duration(seconds: float) -> str:
    """Return a readable duration, e.g. `40 s`, `14 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{max(seconds, 0.0):.1g} s"


def wall_time(at: float) -> str:
    """Return a time, in seconds since the epoch, to the minute, with its zone."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
