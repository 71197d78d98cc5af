"""Deletes stored reports beyond the retention limits, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Protocol

import structlog

from trmon.store.repositories.retention import Pruned

OWNER_CHECK_SECONDS = 10.0
"""How often a process checks whether it has become the one that prunes."""

log = structlog.get_logger(__name__)


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
        may_continue: Callable[[], bool],
    ) -> Pruned:
        """Delete what is beyond the limits, in small transactions, while `may_continue` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Limits on stored reports, whichever is reached first, and on the age of notifications and of the audit log."""

    max_age_seconds: float
    max_bytes_per_run: int
    max_bytes: int
    max_audit_age_seconds: float


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
        self._every_seconds = every_seconds
        self._is_ours = is_ours
        self._clock = clock
        self._count = count
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-pruner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current transaction; the next start prunes the rest."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._is_ours():
                self._prune()
                self._stopping.wait(self._every_seconds)
            else:
                self._stopping.wait(min(OWNER_CHECK_SECONDS, self._every_seconds))

    def _prune(self) -> None:
        try:
            pruned = self._retention.prune(
                now=self._clock(),
                max_age_seconds=self._limits.max_age_seconds,
                max_bytes_per_run=self._limits.max_bytes_per_run,
                max_bytes=self._limits.max_bytes,
                max_audit_age_seconds=self._limits.max_audit_age_seconds,
                may_continue=lambda: not self._stopping.is_set(),
            )
        except Exception as error:  # noqa: BLE001 - the edge of the thread: a full disk must not end the service
            self._count("failures", 1)
            log.warning("pruning_failed", error=str(error))
            return
        for name, n in asdict(pruned).items():
            self._count(name, n)
