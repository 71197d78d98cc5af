"""Deletes stored reports beyond the retention limits, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

from trmon.background.owner_thread import OwnerThread
from trmon.store.repositories.retention import Pruned


class Prunable(Protocol):
    """The part of the store that deletes old data."""

    def prune(
        self,
        *,
        now: float,
        max_age_seconds: float,
        max_bytes_per_run: int,
        max_bytes: int,
        max_audit_age_seconds: float,
        keeps_for_lake: bool,
        may_continue: Callable[[], bool],
    ) -> Pruned:
        """Delete what is beyond the limits, in small transactions, while `may_continue` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Limits on stored reports, whichever is reached first, and on the age of notifications and of the audit log.

    `keeps_for_lake`: whether reports that are still to move to the lake stay, whatever the limits.
    """

    max_age_seconds: float
    max_bytes_per_run: int
    max_bytes: int
    max_audit_age_seconds: float
    keeps_for_lake: bool = False


class Pruner:
    """Prunes at the start and then at an interval; a failure is logged, counted and retried."""

    def __init__(
        self,
        retention: Prunable,
        *,
        limits: RetentionLimits,
        every_seconds: float,
        is_ours: Callable[[], bool] = lambda: True,
        clock: Callable[[], float],
        count: Callable[[str, int], None],
    ) -> None:
        """Args: is_ours: whether this process prunes, of several; count: adds to the counter of a name."""
        self._retention = retention
        self._limits = limits
        self._clock = clock
        self._count = count
        self._thread = OwnerThread(
            "pruner",
            self._prune,
            every_seconds=every_seconds,
            is_ours=is_ours,
            count=count,
            failure="pruning_failed",
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current transaction; the next start prunes the rest."""
        self._thread.close()

    def _prune(self, may_continue: Callable[[], bool]) -> None:
        pruned = self._retention.prune(
            now=self._clock(),
            max_age_seconds=self._limits.max_age_seconds,
            max_bytes_per_run=self._limits.max_bytes_per_run,
            max_bytes=self._limits.max_bytes,
            max_audit_age_seconds=self._limits.max_audit_age_seconds,
            keeps_for_lake=self._limits.keeps_for_lake,
            may_continue=may_continue,
        )
        for name, n in asdict(pruned).items():
            self._count(name, n)
