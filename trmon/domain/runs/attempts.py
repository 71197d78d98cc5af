"""Which attempt a message belongs to: restarts and second trainers are told apart by their launch."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from enum import Enum


class Resolution(Enum):
    """What becomes of a message's attempt; the last two fork it, each for its own reason."""

    CONTINUE = "continue"
    TAKE_OVER = "take_over"
    TWO_TRAINERS = "two_trainers"
    WENT_BACK = "went_back"

    @property
    def forks(self) -> bool:
        """Whether the message goes to an attempt of its own."""
        return self in (Resolution.TWO_TRAINERS, Resolution.WENT_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which launch speaks for one rank of an attempt, and how far it got.

    It began with its first message here, and its heart beat last at `beat_at`: a message may have lain in a spool
    and come by another process, a heartbeat never. `former_launch` held the claim before and reached `former_step`;
    times are seconds on the server's clock.
    """

    launch: str
    seen_at: float
    began_at: float | None = None
    beat_at: float | None = None
    reported_at: float | None = None
    last_step: int | None = None
    ended: bool = False
    former_launch: str | None = None
    former_step: int | None = None

    @property
    def reached_step(self) -> int | None:
        """The largest step that any holder of the claim has reported."""
        return _larger(self.last_step, self.former_step)

    def live(self, *, now: float, live_seconds: float) -> bool:
        """Whether its launch may still be training: seen lately, and it never said that it ended.

        One that was seen long after now was so by a clock that has been put right since.
        """
        return not self.ended and abs(now - self.seen_at) < live_seconds


def resolve_attempt(
    claim: Claim | None, *, launch: str, step: int | None, now: float, live_seconds: float
) -> Resolution:
    """Return what becomes of a message of `launch` under the claim of its (attempt, rank).

    A claim nobody holds is taken over, and so is one whose holder is gone, unless the new launch goes back in steps;
    a launch that took over without a step (its start came first) is judged by its first step. What the former holder
    had reached still belongs to the attempt when it arrives late.
    Args: step: None for messages that have none; now, live_seconds: seconds on the server's clock.
    """
    if claim is None:
        return Resolution.TAKE_OVER
    if launch == claim.launch:
        return Resolution.WENT_BACK if _back(step, claim.former_step) else Resolution.CONTINUE
    if launch == claim.former_launch and _back(step, claim.former_step):
        return Resolution.CONTINUE
    if claim.live(now=now, live_seconds=live_seconds):
        return Resolution.TWO_TRAINERS
    return Resolution.WENT_BACK if _back(step, claim.reached_step) else Resolution.TAKE_OVER


def renewed_claim(
    claim: Claim | None,
    *,
    launch: str,
    step: int | None,
    now: float,
    reports: bool = False,
    ends: bool = False,
    beats: bool = False,
) -> Claim:
    """Return the claim after a message that continued or took it over.

    Args: reports, beats: whether the message is a report or a heartbeat; ends: whether it says that the launch ended.
    """
    if claim is not None and launch == claim.former_launch:
        return claim
    if claim is None or launch != claim.launch:
        claim = Claim(
            launch=launch,
            seen_at=now,
            began_at=now,
            former_launch=claim.launch if claim else None,
            former_step=claim.reached_step if claim else None,
        )
    return replace(
        claim,
        seen_at=now,
        beat_at=now if beats else claim.beat_at,
        reported_at=now if reports else claim.reported_at,
        last_step=_larger(step, claim.last_step),
        ended=ends or claim.ended,
    )


def fork_name(attempt: str, launch: str, *, taken: Container[str] = ()) -> str:
    """Return the name of the attempt of a launch that may not share one; in full where the short form is taken."""
    short = f"{attempt}~{launch[:8]}"
    return f"{attempt}~{launch}" if short in taken else short


def _back(step: int | None, reached: int | None) -> bool:
    return step is not None and reached is not None and step <= reached


def _larger(one: int | None, other: int | None) -> int | None:
    known = [step for step in (one, other) if step is not None]
    return max(known, default=None)
