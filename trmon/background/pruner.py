"""The pruner: keeps the database within its age and its bytes, now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Protocol

import structlog

from trmon.store.repositories.retention import Pruned

LOOK_SECONDS = 10.0
"""How often a process looks whether the pruning has become its own."""

log = structlog.get_logger(__name__)


class Prunable(Protocol):
    """What the pruner asks of the store."""

    def prune(
        self,
        *,
        now: float,
        max_age_seconds: float,
        max_bytes_per_run: int,
        max_bytes: int,
        goes_on: Callable[[], bool],
    ) -> Pruned:
        """Delete what is too old or too much, in small transactions, for as long as it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """How much is kept of reports, whichever comes first, and how long what was told; batches stay for ever."""

    max_age_seconds: float
    max_bytes_per_run: int
    max_bytes: int


class Pruner:
    """A thread that prunes once at the start and then every so often; a failure is logged, counted and tried again."""

    def __init__(
        self,
        retention: Prunable,
        *,
        keep: RetentionLimits,
        every_seconds: float,
        is_ours: Callable[[], bool] = lambda: True,
        clock: Callable[[], float],
        count: Callable[[str, int], None],
    ) -> None:
        self._retention = retention
        self._keep = keep
        self._every_seconds = every_seconds
        self._is_ours = is_ours
        self._clock = clock
        self._count = count
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-pruner", daemon=True)

    def start(self) -> None:
        """Begin to prune."""
        self._thread.start()

    def close(self) -> None:
        """Stop, after the small transaction that is under way; what is left is pruned another time."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._is_ours():
                self._prune()
                self._stopping.wait(self._every_seconds)
            else:
                self._stopping.wait(min(LOOK_SECONDS, self._every_seconds))

    def _prune(self) -> None:
        try:
            pruned = self._retention.prune(
                now=self._clock(),
                max_age_seconds=self._keep.max_age_seconds,
                max_bytes_per_run=self._keep.max_bytes_per_run,
                max_bytes=self._keep.max_bytes,
                goes_on=lambda: not self._stopping.is_set(),
            )
        except Exception as error:  # noqa: BLE001 - the edge of a worker: a full disk must not end the service
            self._count("failures", 1)
            log.warning("pruning failed", error=str(error))
            return
        for what, n in asdict(pruned).items():
            self._count(what, n)
