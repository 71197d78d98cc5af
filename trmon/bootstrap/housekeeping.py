"""Repeats a task at an interval on a thread of its own, on the one process of several whose task it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

import structlog

from trmon.store.repositories.retention import Pruned

if TYPE_CHECKING:
    from trmon.store.lake.mover import LakePass


OWNER_CHECK_SECONDS = 10.0
"""How often a process checks whether the task has become its own."""

log = structlog.get_logger(__name__)


class OwnerThread:
    """Runs a task at the start and then at an interval; a failure is logged, counted and retried."""

    def __init__(
        self,
        name: str,
        task: Callable[[Callable[[], bool]], None],
        *,
        every_seconds: float,
        is_ours: Callable[[], bool],
        count: Callable[[str, int], None],
        failure: str,
    ) -> None:
        """Args: task: works in small steps while the function that it is given holds; is_ours: whether this process
        runs it, of several; count: adds to the counter of a name; failure: the event in the log.
        """
        self._task = task
        self._every_seconds = every_seconds
        self._is_ours = is_ours
        self._count = count
        self._failure = failure
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"trmon-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current step of the task; the next start goes on with the rest."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._is_ours():
                self._try_task()
                self._stopping.wait(self._every_seconds)
            else:
                self._stopping.wait(min(OWNER_CHECK_SECONDS, self._every_seconds))

    def _try_task(self) -> None:
        try:
            self._task(lambda: not self._stopping.is_set())
        except Exception as error:  # noqa: BLE001 - the edge of the thread: a full disk must not end the service
            self._count("failures", 1)
            log.warning(self._failure, error=str(error))


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
