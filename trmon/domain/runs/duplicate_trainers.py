"""Duplicate trainers: two live launches under one run name, detected by their heartbeats on the server's clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter


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
    found = [pair for group in by_rank.values() for pair in _pairs(group)]
    return max(found, key=attrgetter("seconds"), default=None)


def _pairs(launches: list[ActiveLaunch]) -> Iterable[DuplicateTrainers]:
    """Yield each launch with that earlier one whose heartbeat is newest."""
    older = launches[0]
    for newer in launches[1:]:
        if newer.launch != older.launch:
            yield DuplicateTrainers(older, newer, min(older.alive_until, newer.alive_until) - newer.began_at)
        older = max(older, newer, key=attrgetter("alive_until"))
