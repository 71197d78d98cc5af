"""Rounds: one pass over each run that asks for one, all written together; a run that fails stops no other."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import structlog

from trmon.app.keeper import Pass, RunKeeper
from trmon.app.ledger import Tally
from trmon.app.live import Live
from trmon.app.portrait import Vigil
from trmon.domain.errors import NotFound
from trmon.domain.ports import RunLog

BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
COMMIT_TIMEOUT_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Whoever counts what the worker does; called from its thread."""

    def passed(self, tally: Tally) -> None:
        """Note a pass that was written."""

    def failed(self, error: Exception) -> None:
        """Note a pass that failed; it will be tried again."""


@dataclass(frozen=True, slots=True)
class Setback:
    """How often a run has failed in a row, and when it is tried again."""

    failures: int
    retry_at: float


class Rounds:
    """The runs in memory. Not thread-safe: one thread makes rounds."""

    def __init__(self, run_log: RunLog, *, vigil: Vigil, live: Live, observer: Observer) -> None:
        self._log = run_log
        self._vigil = vigil
        self._live = live
        self._observer = observer
        self._keepers: dict[int, RunKeeper] = {}
        self._setbacks: dict[int, Setback] = {}

    def due(self, now: float) -> set[int]:
        """Return the runs that the clock alone asks for: an end of patience, or another try."""
        by_clock = {run_id for run_id, keeper in self._keepers.items() if keeper.is_due(now)}
        return by_clock | {run_id for run_id, setback in self._setbacks.items() if setback.retry_at <= now}

    def make(self, run_ids: Iterable[int], *, now: float) -> set[int]:
        """Make one pass over each of these runs and write them together; return those of which more waits.

        A run that failed keeps its place until its time to be tried again has come.
        """
        written: list[tuple[int, Pass, Future[None] | None]] = []
        for run_id in run_ids:
            setback = self._setbacks.get(run_id)
            if setback is None or setback.retry_at <= now:
                self._pass(run_id, written, now=now)
        return {run_id for run_id, made, future in written if self._settle(run_id, made, future, now=now)}

    def rest(self) -> None:
        """Write a checkpoint of every mind that has moved: what follows need not be folded again."""
        for run_id, keeper in self._keepers.items():
            try:
                outcome = keeper.rest()
                if outcome is not None:
                    self._log.commit(outcome).result(COMMIT_TIMEOUT_SECONDS)
            except Exception as error:  # noqa: BLE001 - the worker's edge: a checkpoint is only a short cut
                self._observer.failed(error)
                log.warning("checkpoint_failed", run_id=run_id, error=repr(error))

    def _pass(self, run_id: int, written: list[tuple[int, Pass, Future[None] | None]], *, now: float) -> None:
        try:
            keeper = self._keepers.get(run_id)
            if keeper is None:
                keeper = self._keepers[run_id] = RunKeeper(self._log, run_id, vigil=self._vigil, now=now)
            made = keeper.advance(now)
            written.append((run_id, made, self._log.commit(made.outcome) if made.outcome else None))
        except NotFound:
            self._forget(run_id)
        except Exception as error:  # noqa: BLE001 - the worker's edge: this run is tried again, the others go on
            self._fail(run_id, error, now=now)

    def _settle(self, run_id: int, made: Pass, future: Future[None] | None, *, now: float) -> bool:
        try:
            if future is not None:
                future.result(COMMIT_TIMEOUT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the worker's edge: nothing of the pass was written
            self._fail(run_id, error, now=now)
            return False
        self._setbacks.pop(run_id, None)
        keeper = self._keepers[run_id]
        self._live.show(keeper.view(now))
        self._observer.passed(made.tally)
        if keeper.is_done and not made.more:
            del self._keepers[run_id]
        return made.more

    def _fail(self, run_id: int, error: Exception, *, now: float) -> None:
        """What the keeper holds may be half changed: it is made anew from what was written."""
        self._keepers.pop(run_id, None)
        failures = self._setbacks[run_id].failures + 1 if run_id in self._setbacks else 1
        wait_seconds = min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16), MAX_BACKOFF_SECONDS)
        self._setbacks[run_id] = Setback(failures, now + wait_seconds)
        self._observer.failed(error)
        log.error("run_pass_failed", run_id=run_id, failures=failures, retry_in_seconds=wait_seconds, exc_info=error)

    def _forget(self, run_id: int) -> None:
        self._keepers.pop(run_id, None)
        self._setbacks.pop(run_id, None)
        self._live.drop(run_id)
