"""The life of a run: running, paused, stalled, crashed or finished, by its trainer's word and by the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from trmon.domain.model.messages import AnyReport, StoredNotice, StoredReport
from trmon.domain.runs.run import RunState
from trmon_client.core import wire

HEARTBEAT_FRESH_SECONDS = 90.0
"""Three of the client's heartbeats: a process silent for longer is not known to live."""


class LifeReason(Enum):
    """Why a run's state changed."""

    REPORTED = "it reports"
    RESTARTED = "a new start of its trainer speaks"
    PAUSED = "its trainer asked for a pause"
    SILENT = "no report for longer than expected"
    CRASHED = "its trainer ended with an error"
    FINISHED = "its trainer closed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a run may be silent before it is stalled, in seconds and in steps of the usual length."""

    floor_seconds: float = 120.0
    factor: float = 3.0
    heartbeat_floors: float = 5.0
    heartbeat_factor: float = 10.0

    def limit_seconds(self, expected_step_seconds: float | None, *, heart_beats: bool) -> float:
        """Return the longest silence: by default 120 s or 3 steps, and 600 s or 10 steps while its heart beats."""
        expected = expected_step_seconds or 0.0
        strict = max(self.factor * expected, self.floor_seconds)
        if not heart_beats:
            return strict
        return max(strict, self.heartbeat_factor * expected, self.heartbeat_floors * self.floor_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end that a trainer announced: by which launch, and when on its own clock."""

    launch: str
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Where a run is in its life; `silent_since` is the server's time of its newest report, or of its start."""

    state: RunState
    silent_since: float
    ending: Ending | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeChange:
    """A new state and why; `at` is when, `silent_seconds` and `limit_seconds` are what a silence was judged by."""

    before: RunState
    state: RunState
    reason: LifeReason
    at: float
    silence_started_at: float
    silent_seconds: float = 0.0
    limit_seconds: float = 0.0
    error: str = ""


def after_report(life: Life, report: AnyReport) -> tuple[Life, LifeChange | None]:
    """Return the life after a report: it runs, unless what came is the tail of a launch that has ended.

    A damaged report does not say which launch sent it: it revives no run that has ended.
    """
    after = replace(life, silent_since=max(life.silent_since, report.received_at))
    revives = _revives(life, report.report) if isinstance(report, StoredReport) else not life.state.ended
    if life.state is RunState.RUNNING or not revives:
        return after, None
    reason = LifeReason.RESTARTED if life.state.ended else LifeReason.REPORTED
    return _changed(after, RunState.RUNNING, reason, at=report.received_at, silence_started_at=life.silent_since)


def after_notice(life: Life, notice: StoredNotice) -> tuple[Life, LifeChange | None]:
    """Return the life after a start, a pause or an end; the first word of an end stands."""
    message, at = notice.message, notice.received_at
    if isinstance(message, wire.Start) and _revives(life, message):
        after = replace(life, silent_since=max(life.silent_since, at))
        if life.state is RunState.RUNNING:
            return after, None
        return _changed(after, RunState.RUNNING, LifeReason.RESTARTED, at=at, silence_started_at=life.silent_since)
    if isinstance(message, wire.Pause) and not life.state.ended and life.state is not RunState.PAUSED:
        return _changed(life, RunState.PAUSED, LifeReason.PAUSED, at=at, silence_started_at=life.silent_since)
    if isinstance(message, wire.Finish) and not life.state.ended:
        return _ended(life, message, at=at)
    return life, None


def after_silence(
    life: Life,
    *,
    now: float,
    watching_since: float,
    last_seen: Callable[[], float | None],
    expected_step_seconds: float | None,
    patience: Patience,
) -> tuple[Life, LifeChange | None]:
    """Return the life at this moment: stalled once a running run was silent for too long.

    Silence counts from when the service began to watch: what it slept through is not the trainer's. A heartbeat
    after the newest report says that the process lives, not that it reports: it buys time up to the longer limit.
    Args: last_seen: when a message of any kind came last; asked only once the shorter limit has passed.
    """
    silent = now - max(life.silent_since, watching_since)
    shorter, longer = (patience.limit_seconds(expected_step_seconds, heart_beats=beats) for beats in (False, True))
    if life.state is not RunState.RUNNING or silent <= shorter:
        return life, None
    seen = last_seen()
    heart_beats = seen is not None and seen > life.silent_since and now - seen <= HEARTBEAT_FRESH_SECONDS
    limit = longer if heart_beats else shorter
    if silent <= limit:
        return life, None
    after = replace(life, state=RunState.STALLED)
    return after, LifeChange(
        before=life.state,
        state=after.state,
        reason=LifeReason.SILENT,
        at=now,
        silence_started_at=life.silent_since,
        silent_seconds=silent,
        limit_seconds=limit,
    )


def ending_of(message: wire.Finish) -> Ending:
    """Return the end that a message announces."""
    return Ending(launch=message.launch, sent_at=message.sent_at)


def _revives(life: Life, message: wire.Message) -> bool:
    if life.ending is None:
        return True
    later_start = isinstance(message, wire.Start) and message.sent_at > life.ending.sent_at
    return message.launch != life.ending.launch or later_start


def _ended(life: Life, message: wire.Finish, *, at: float) -> tuple[Life, LifeChange | None]:
    """One rank's crash ends the run; a clean end is rank 0's to say, as the others may leave before it."""
    crashed = message.outcome == "crashed"
    if not crashed and message.rank != 0:
        return life, None
    after = replace(life, ending=ending_of(message))
    return _changed(
        after,
        RunState.CRASHED if crashed else RunState.FINISHED,
        LifeReason.CRASHED if crashed else LifeReason.FINISHED,
        at=at,
        silence_started_at=life.silent_since,
        error=message.error,
    )


def _changed(
    life: Life, state: RunState, reason: LifeReason, *, at: float, silence_started_at: float, error: str = ""
) -> tuple[Life, LifeChange]:
    change = LifeChange(
        before=life.state, state=state, reason=reason, at=at, silence_started_at=silence_started_at, error=error
    )
    ending = life.ending if state.ended else None
    return replace(life, state=state, ending=ending), change
