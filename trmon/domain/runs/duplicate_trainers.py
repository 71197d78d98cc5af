"""Company: whether two trainers live under one run's name, told by their heartbeats on the server's clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A launch that speaks for a rank of a run: when it began to, and when its heart beat last, None before it did.

    Times are seconds on the server's clock. A heartbeat comes from the process itself, while a message may have lain
    in a spool and be sent by the process after it: only heartbeats prove who lives.
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
    def known_until(self) -> float:
        """When its heart beat last; nobody is known to live who has not been heard so."""
        return -math.inf if self.beat_at is None else self.beat_at

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        reached = "" if self.last_step is None else f" at step {self.last_step}"
        return f"attempt {self.attempt} (launch {self.launch}, rank {self.rank}){reached}"


@dataclass(frozen=True, slots=True)
class DuplicateTrainers:
    """Two launches that live and speak for one rank, and the seconds for which both have been heard.

    `seconds` is negative as long as the heart of one of them has not beaten since the newer one began.
    """

    older: Speaker
    newer: Speaker
    seconds: float

    @property
    def names(self) -> str:
        """Both, the older one first."""
        return f"{self.older.name} and {self.newer.name}"


def find_duplicate_trainers(speakers: Iterable[Speaker]) -> DuplicateTrainers | None:
    """Return the two launches that have lived side by side on one rank for longest, or None where no two do.

    A launch of which any rank has ended has ended: its other ranks only leave later. A process that restarts leaves one
    that is silent, and of two ranks that are each started alone, each speaks for itself.
    Args: speakers: those whose hearts have beaten lately, or that began lately.
    """
    known = list(speakers)
    ended = {speaker.launch for speaker in known if speaker.ended}
    by_rank: dict[int, list[Speaker]] = {}
    for speaker in sorted(known, key=attrgetter("began_at", "attempt_id")):
        if speaker.launch not in ended:
            by_rank.setdefault(speaker.rank, []).append(speaker)
    found = [pair for living in by_rank.values() for pair in _pairs(living)]
    return max(found, key=attrgetter("seconds"), default=None)


def _pairs(living: list[Speaker]) -> Iterable[DuplicateTrainers]:
    """Yield each launch with the one, of those that began before it, that was heard last."""
    older = living[0]
    for newer in living[1:]:
        if newer.launch != older.launch:
            yield DuplicateTrainers(older, newer, min(older.known_until, newer.known_until) - newer.began_at)
        older = max(older, newer, key=attrgetter("known_until"))
