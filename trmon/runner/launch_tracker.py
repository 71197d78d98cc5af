"""Tracks which launch of a trainer reports for each rank of a run, to detect two trainers under one name."""

from __future__ import annotations

import math

from trmon.domain.ports import RunLog
from trmon.domain.runs.attempts import DuplicateTrainers, find_duplicate_trainers
from trmon.domain.runs.liveness import HEARTBEAT_FRESH_SECONDS
from trmon_client.core import wire

CHECK_SECONDS = 5.0
"""How often the store is queried while two trainers report; each sends a heartbeat every 30 s."""


class LaunchTracker:
    """Remembers the last launch of each rank, and queries the store only where it has changed.

    A new tracker checks once, since the launch before may be unknown.
    """

    def __init__(self, log: RunLog, run_id: int) -> None:
        self._log = log
        self._run_id = run_id
        self._launches: dict[int, str] = {}
        self._next_check_at = 0.0

    @property
    def next_check_at(self) -> float:
        """When to call `check`; infinity while a single trainer reports."""
        return self._next_check_at

    def record(self, message: wire.Message) -> None:
        """Remember the message's launch; if it is another one than before, or ends, a check is due at once."""
        former = self._launches.get(message.rank)
        self._launches[message.rank] = message.launch
        if (former is not None and former != message.launch) or isinstance(message, wire.Finish):
            self._next_check_at = 0.0

    def check(self, now: float) -> DuplicateTrainers | None:
        """Return the two trainers if two are alive, and schedule the next check while that is so."""
        found = find_duplicate_trainers(self._log.active_launches(self._run_id, since=now - HEARTBEAT_FRESH_SECONDS))
        self._next_check_at = math.inf if found is None else now + CHECK_SECONDS
        return found
