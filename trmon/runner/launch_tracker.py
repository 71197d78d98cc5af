"""Attendance: who speaks for a run, asked of the store only while two launches may live under its name."""

from __future__ import annotations

import math

from trmon.domain.ports import RunLog
from trmon.domain.runs.duplicate_trainers import DuplicateTrainers, find_duplicate_trainers
from trmon.domain.runs.liveness import HEARTBEAT_FRESH_SECONDS
from trmon_client.core import wire

LOOK_SECONDS = 5.0
"""How long a look lasts: heartbeats come each 30 s."""


class LaunchTracker:
    """Remembers who spoke last for each rank of a run, and looks closer where that was another one before.

    A new one looks once: what it does not remember may be so.
    """

    def __init__(self, log: RunLog, run_id: int) -> None:
        self._log = log
        self._run_id = run_id
        self._launches: dict[int, str] = {}
        self._look_at = 0.0

    @property
    def look_at(self) -> float:
        """When it wants to look; infinity while one trainer speaks alone."""
        return self._look_at

    def heard(self, message: wire.Message) -> None:
        """Note who speaks; another one than before, or one that ends, is a reason to look at once."""
        former = self._launches.get(message.rank)
        self._launches[message.rank] = message.launch
        if (former is not None and former != message.launch) or isinstance(message, wire.Finish):
            self._look_at = 0.0

    def look(self, now: float) -> DuplicateTrainers | None:
        """Return the two trainers that live, if two do; it looks again for as long as that is so."""
        found = find_duplicate_trainers(self._log.speakers(self._run_id, since=now - HEARTBEAT_FRESH_SECONDS))
        self._look_at = math.inf if found is None else now + LOOK_SECONDS
        return found
