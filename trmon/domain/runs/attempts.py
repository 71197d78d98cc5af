"""Attempts: which attempt a message belongs to; the launch id distinguishes restarts from second trainers."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter

from trmon_client.core import wire


class Resolution(Enum):
    """How a message relates to the attempt it names; the last three create a new attempt."""

    CONTINUE = "continue"
    TAKE_OVER = "take_over"
    TWO_TRAINERS = "two_trainers"
    WENT_BACK = "went_back"
    MOVED = "moved"

    @property
    def forks(self) -> bool:
        """Whether the message goes to a new attempt."""
        return self in (Resolution.TWO_TRAINERS, Resolution.WENT_BACK, Resolution.MOVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The launch that reports for one rank of an attempt, and its progress.

    `began_at` is the time of its first message, `beat_at` of its newest heartbeat; another process may send a spooled
    message later, but never a heartbeat. `reported_at` and `scalars_at` are those of the newest report and scalars, of
    the former launch until its own come. `former_launch` held the claim before and reached `former_step`. Times are
    seconds on the server's clock.
    """

    launch: str
    seen_at: float
    began_at: float | None = None
    beat_at: float | None = None
    reported_at: float | None = None
    scalars_at: float | None = None
    last_step: int | None = None
    ended: bool = False
    former_launch: str | None = None
    former_step: int | None = None

    @property
    def reached_step(self) -> int | None:
        """The largest step that any launch has reported under the claim."""
        return _larger(self.last_step, self.former_step)

    def is_live(self, *, now: float, live_seconds: float) -> bool:
        """Whether the launch may still be training: it was seen recently, and has not sent its end.

        A time far in the future comes from a clock that was corrected since.
        """
        return not self.ended and abs(now - self.seen_at) < live_seconds


def resolve_attempt(
    claim: Claim | None, *, launch: str, step: int | None, now: float, live_seconds: float, is_moved: bool = False
) -> Resolution:
    """Return how a message of `launch` relates to the claim of its (attempt, rank).

    A launch takes over a claim that has no launch or whose launch is gone, unless it goes back in steps. The first step
    of a launch that took over with a message without a step (its start) is checked when it arrives. Late messages of
    the former launch, up to the step that it had reached, still belong to the attempt.
    Nothing but such late messages belongs to an attempt that has moved to the lake.
    Args: step: None for messages that have none; now, live_seconds: seconds on the server's clock; is_moved: whether
    the attempt is in the lake.
    """
    if is_moved:
        return Resolution.CONTINUE if _is_late(claim, launch=launch, step=step) else Resolution.MOVED
    if claim is None:
        return Resolution.TAKE_OVER
    if launch == claim.launch:
        return Resolution.WENT_BACK if _goes_back(step, claim.former_step) else Resolution.CONTINUE
    if launch == claim.former_launch and _goes_back(step, claim.former_step):
        return Resolution.CONTINUE
    if claim.is_live(now=now, live_seconds=live_seconds):
        return Resolution.TWO_TRAINERS
    return Resolution.WENT_BACK if _goes_back(step, claim.reached_step) else Resolution.TAKE_OVER


def _is_late(claim: Claim | None, *, launch: str, step: int | None) -> bool:
    """Return whether a message is of a launch, and of a step, that the attempt had reached."""
    if claim is not None and launch == claim.launch:
        return step is None or _goes_back(step, claim.last_step)
    return claim is not None and launch == claim.former_launch and _goes_back(step, claim.former_step)


def was_reached_before_fork(claim: Claim | None, *, launch: str, step: int | None) -> bool:
    """Return whether a launch had reached a step in the attempt that it has left since.

    A report that is sent again belongs where it was stored, and other chunks of its step with it; ranks leave an
    attempt one after another, so that one of them may have stored reports there before another one forks it.
    Args: claim: that of the attempt that was left, and of the message's rank.
    """
    if claim is None or step is None or (launch == claim.launch and _goes_back(step, claim.former_step)):
        return False
    return _is_late(claim, launch=launch, step=step)


def progress_step(claim: Claim | None, message: wire.Message) -> int | None:
    """Return the step that a message shows its launch to have reached; None for a message that shows none.

    Scalars count only while the rank has sent no report: later ones may belong to any step, or count other steps.
    """
    if isinstance(message, wire.Report):
        return message.step
    has_reported = claim is not None and claim.reported_at is not None
    return message.step if isinstance(message, wire.Scalars) and not has_reported else None


def renewed_claim(claim: Claim | None, message: wire.Message, *, now: float) -> Claim:
    """Return the claim after a message that continues it or takes it over."""
    step, launch = progress_step(claim, message), message.launch
    if claim is not None and launch == claim.former_launch:
        return claim
    if claim is None or launch != claim.launch:
        claim = Claim(
            launch=launch,
            seen_at=now,
            began_at=now,
            former_launch=claim.launch if claim else None,
            former_step=claim.reached_step if claim else None,
            reported_at=claim.reported_at if claim else None,
            scalars_at=claim.scalars_at if claim else None,
        )
    return replace(
        claim,
        seen_at=now,
        beat_at=now if isinstance(message, wire.Heartbeat) else claim.beat_at,
        reported_at=now if isinstance(message, wire.Report) else claim.reported_at,
        scalars_at=now if isinstance(message, wire.Scalars) else claim.scalars_at,
        last_step=_larger(step, claim.last_step),
        ended=isinstance(message, wire.Finish) or claim.ended,
    )


def fork_name(attempt: str, launch: str, *, taken: Container[str] = ()) -> str:
    """Return the name of a new attempt for a launch; with the whole launch id if the short name is taken."""
    short = f"{attempt}~{launch[:8]}"
    return f"{attempt}~{launch}" if short in taken else short


def _goes_back(step: int | None, reached: int | None) -> bool:
    return step is not None and reached is not None and step <= reached


def _larger(one: int | None, other: int | None) -> int | None:
    known = [step for step in (one, other) if step is not None]
    return max(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveLaunch:
    """A launch that reports for a rank of a run, with the times of its first message and its newest heartbeat.

    Times are seconds on the server's clock. Only heartbeats prove that a process is alive, since a later process may
    send the messages that an earlier one left in its spool.
    """

    attempt_id: int
    attempt: str
    rank: int
    launch: str
    began_at: float
    beat_at: float | None = None
    last_step: int | None = None
    ended: bool = False

    @property
    def alive_until(self) -> float:
        """The time of its newest heartbeat, until which it was certainly alive; -inf without a heartbeat."""
        return -math.inf if self.beat_at is None else self.beat_at

    @property
    def name(self) -> str:
        """A description of it for alert texts."""
        reached = "" if self.last_step is None else f" at step {self.last_step}"
        return f"attempt {self.attempt} (launch {self.launch}, rank {self.rank}){reached}"


@dataclass(frozen=True, slots=True)
class DuplicateTrainers:
    """Two live launches that report for one rank, and for how many seconds both have sent heartbeats.

    `seconds` is negative while one of them has not sent a heartbeat since the newer one began.
    """

    older: ActiveLaunch
    newer: ActiveLaunch
    seconds: float

    @property
    def names(self) -> str:
        """A description of both, the older one first."""
        return f"{self.older.name} and {self.newer.name}"


def find_duplicate_trainers(launches: Iterable[ActiveLaunch]) -> DuplicateTrainers | None:
    """Return the two launches that have been alive on one rank at the same time for longest; None without such a pair.

    A launch has ended as soon as one of its ranks has. A restart leaves a launch that sends no heartbeats, and ranks
    that are launched one by one do not compete for the same rank: neither is a duplicate.
    Args: launches: those that sent a heartbeat, or began, recently.
    """
    known = list(launches)
    ended = {launch.launch for launch in known if launch.ended}
    by_rank: dict[int, list[ActiveLaunch]] = {}
    for launch in sorted(known, key=attrgetter("began_at", "attempt_id")):
        if launch.launch not in ended:
            by_rank.setdefault(launch.rank, []).append(launch)
    found = []
    for older, *others in by_rank.values():
        for newer in others:
            if newer.launch != older.launch:
                both_until = min(older.alive_until, newer.alive_until)
                found.append(DuplicateTrainers(older, newer, both_until - newer.began_at))
            older = max(older, newer, key=attrgetter("alive_until"))
    return max(found, key=attrgetter("seconds"), default=None)
