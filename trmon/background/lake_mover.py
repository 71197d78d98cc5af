"""Moves attempts of ended runs to the lake, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog

from trmon.background.owner_thread import OwnerThread

if TYPE_CHECKING:
    from trmon.store.lake.lake import LakePass

log = structlog.get_logger(__name__)


class MovableLake(Protocol):
    """The part of the store that moves attempts."""

    def run_pass(self, *, now: float, after_seconds: float, may_continue: Callable[[], bool]) -> LakePass:
        """Move what can move, in small steps, while `may_continue` holds."""


class LakeMoverThread:
    """Runs a pass at the start and then at an interval; a failure is logged, counted and retried."""

    def __init__(
        self,
        open_lake: Callable[[], MovableLake],
        *,
        after_seconds: float,
        every_seconds: float,
        is_ours: Callable[[], bool],
        clock: Callable[[], float],
        count: Callable[[str, int], None],
    ) -> None:
        """Args: is_ours: whether this process is the one that moves; count: adds to a counter by name."""
        self._open_lake = open_lake
        self._after_seconds = after_seconds
        self._clock = clock
        self._count = count
        self._lake: MovableLake | None = None
        self._thread = OwnerThread(
            "lake-mover",
            self._move,
            every_seconds=every_seconds,
            is_ours=is_ours,
            count=count,
            failure="lake_move_failed",
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current step; the next start completes a lake batch that has begun."""
        self._thread.close()

    def _move(self, may_continue: Callable[[], bool]) -> None:
        if self._lake is None:
            self._lake = self._open_lake()
        done = self._lake.run_pass(now=self._clock(), after_seconds=self._after_seconds, may_continue=may_continue)
        for batch in done.batches:
            self._count("attempts", batch.attempts)
            self._count("reports", batch.reports)
            self._count("bytes", batch.n_bytes)
            log.info("lake_batch_moved", id=batch.id, attempts=batch.attempts, reports=batch.reports)
        self._count("deleted_runs", done.deleted_runs)
        self._count("merged_files", done.merged_files)
