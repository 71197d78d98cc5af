"""Liveness: how the state of a run follows from messages of its trainer and from silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from trmon.domain.messages import AnyReport, StoredNotice, StoredReport
from trmon.domain.runs.run import RunEnding, RunState
from trmon_client.core import wire

HEARTBEAT_FRESH_SECONDS = 90.0
"""Three heartbeat intervals of the client, after which a process without a heartbeat no longer counts as alive."""
CLOCK_AHEAD_SECONDS = 60.0
"""A time further in the future was written before the clock was set back; clocks of machines differ by less."""


class StateChangeReason(Enum):
    """Why the state of a run changed."""

    REPORTED = "the trainer reports"
    RESTARTED = "the trainer was started again"
    PAUSED = "the trainer paused"
    SILENT = "no report for longer than expected, and no exit was seen"
    CRASHED = "the trainer ended with an error"
    FINISHED = "the trainer finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimits:
    """How long a run may be silent before it counts as stalled, in seconds and in steps of the usual length."""

    floor_seconds: float = 120.0
    factor: float = 3.0
    heartbeat_floors: float = 5.0
    heartbeat_factor: float = 10.0

    def limit_seconds(self, expected_step_seconds: float | None, *, has_heartbeat: bool) -> float:
        """Return the longest silence allowed: by default 120 s or 3 steps, with heartbeats 600 s or 10 steps."""
        expected = expected_step_seconds or 0.0
        strict = max(self.factor * expected, self.floor_seconds)
        if not has_heartbeat:
            return strict
        return max(strict, self.heartbeat_factor * expected, self.heartbeat_floors * self.floor_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The state of a run, and the end that its trainer sent, if it has ended.

    `silent_since` is the server's time of its newest report, or of its start.
    """

    state: RunState
    silent_since: float
    ending: wire.Finish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A change of state at a time; for a stall, `silent_seconds` is the silence and `limit_seconds` its limit.

    `ending` is the end that the trainer reported, None unless that is the reason.
    """

    state: RunState
    reason: StateChangeReason
    at: float
    silence_started_at: float
    silent_seconds: float = 0.0
    limit_seconds: float = 0.0
    ending: RunEnding | None = None


def after_report(liveness: Liveness, report: AnyReport) -> tuple[Liveness, StateChange | None]:
    """Return the liveness after a report: running, unless it is late or damaged, and its launch has ended."""
    restarts = _restarts(liveness, report.report) if isinstance(report, StoredReport) else not liveness.state.ended
    return _seen(liveness, at=report.received_at, restarts=restarts)


def after_scalars(liveness: Liveness, notice: StoredNotice) -> tuple[Liveness, StateChange | None]:
    """Return the liveness after scalars of a trainer that sends no reports: only then do they show that it runs."""
    return _seen(liveness, at=notice.received_at, restarts=_restarts(liveness, notice.message))


def after_notice(liveness: Liveness, notice: StoredNotice) -> tuple[Liveness, StateChange | None]:
    """Return the liveness after a start, a pause or an end.

    The first end decides how the run ended, except that a failure explains the signal that ended it: a launcher ends
    all ranks when one of them fails.
    """
    message, at = notice.message, notice.received_at
    if isinstance(message, wire.Start) and _restarts(liveness, message):
        return _seen(liveness, at=at, restarts=True, reason=StateChangeReason.RESTARTED)
    is_pause = isinstance(message, wire.Pause) and not isinstance(message.checkpoint, wire.SavedCheckpoint)
    if is_pause and not liveness.state.ended and liveness.state is not RunState.PAUSED:
        return _changed(liveness, RunState.PAUSED, StateChangeReason.PAUSED, at=at)
    if not isinstance(message, wire.Finish):
        return liveness, None
    known, crashed = liveness.ending, message.outcome == "crashed"
    by_signal = (message.launch, wire.EndReason.SIGNAL.value)
    explains = crashed and known is not None and (known.launch, known.reason) == by_signal
    # A crash of any rank ends the run; only rank 0 ends it without an error, since other ranks may exit earlier.
    if (liveness.state.ended and not explains) or not (crashed or message.rank == 0):
        return liveness, None
    state, reason = RunState.FINISHED, StateChangeReason.FINISHED
    if crashed:
        state, reason = RunState.CRASHED, StateChangeReason.CRASHED
    return _changed(liveness, state, reason, at=at, finish=message)


def after_silence(
    liveness: Liveness,
    *,
    now: float,
    watching_since: float,
    last_seen: Callable[[], float | None],
    expected_step_seconds: float | None,
    limits: SilenceLimits,
) -> tuple[Liveness, StateChange | None]:
    """Return the liveness now: stalled if a running run has been silent for too long.

    Silence starts no earlier than `watching_since`, so a downtime of the service does not count. A heartbeat after the
    newest report shows that the process is alive, so the longer limit applies.
    Args: last_seen: returns when the newest message of any kind arrived; called only after the shorter limit.
    """
    silent = now - max(liveness.silent_since, watching_since)
    shorter, longer = (limits.limit_seconds(expected_step_seconds, has_heartbeat=alive) for alive in (False, True))
    if liveness.state is not RunState.RUNNING or silent <= shorter:
        return liveness, None
    seen = last_seen()
    has_heartbeat = seen is not None and seen > liveness.silent_since and abs(now - seen) <= HEARTBEAT_FRESH_SECONDS
    limit = longer if has_heartbeat else shorter
    if silent <= limit:
        return liveness, None
    after, change = _changed(liveness, RunState.STALLED, StateChangeReason.SILENT, at=now)
    return after, replace(change, silent_seconds=silent, limit_seconds=limit)


def time_by_now(at: float, *, now: float) -> float:
    """Return a time as it was written; now if it was written before the clock was set back."""
    return at if at <= now + CLOCK_AHEAD_SECONDS else now


def _seen(
    liveness: Liveness, *, at: float, restarts: bool, reason: StateChangeReason | None = None
) -> tuple[Liveness, StateChange | None]:
    """Return the liveness after a sign of life; without a reason, its state says whether the trainer restarted."""
    silent_since = max(liveness.silent_since, at)
    if liveness.state is RunState.RUNNING or not restarts:
        return replace(liveness, silent_since=silent_since), None
    of_state = StateChangeReason.RESTARTED if liveness.state.ended else StateChangeReason.REPORTED
    after, change = _changed(liveness, RunState.RUNNING, reason or of_state, at=at)
    return replace(after, silent_since=silent_since), change


def _restarts(liveness: Liveness, message: wire.Message) -> bool:
    if liveness.ending is None:
        return True
    later_start = isinstance(message, wire.Start) and message.sent_at > liveness.ending.sent_at
    return message.launch != liveness.ending.launch or later_start


def _changed(
    liveness: Liveness, state: RunState, reason: StateChangeReason, *, at: float, finish: wire.Finish | None = None
) -> tuple[Liveness, StateChange]:
    ending = None if finish is None else RunEnding.of(finish, at=at)
    change = StateChange(state=state, reason=reason, at=at, silence_started_at=liveness.silent_since, ending=ending)
    return replace(liveness, state=state, ending=finish), change
