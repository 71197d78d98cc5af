"""The worker: a thread that makes rounds when reports come and, each second, when the clock asks for one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Thread

import structlog

from trmon.domain.ports import Ownership, RunLog, RunUpdateWriter
from trmon.domain.runs.run import Run
from trmon.runner.ownership import SoleOwner
from trmon.runner.run_context import WatchConfig
from trmon.runner.scheduler import PassObserver, Scheduler, ViewSink

TICK_SECONDS = 1.0
BREATH_SECONDS = (0.015, 0.25)
"""Least and longest rest after a round, half as long as the round took: the door has its turn, and reports that come
meanwhile share the queries and the commit of one pass. What a page waits for is mostly this and the round before."""
ADOPTED_A_ROUND = 8
"""How many runs are taken up a round after a start: the others' reports do not wait for ten thousand of them."""

log = structlog.get_logger(__name__)


class Worker:
    """Watches the runs that are its own, from `start` to `close`."""

    def __init__(
        self,
        run_log: RunLog,
        *,
        outcomes: RunUpdateWriter,
        watch_config: WatchConfig,
        display: ViewSink,
        observer: PassObserver,
        ownership: Ownership | None = None,
        listen: Callable[[], None] = lambda: None,
        clock: Callable[[], float],
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """Args: listen: called on the worker's thread after each round, and before the first."""
        self._log = run_log
        self._rounds = Scheduler(
            run_log, outcomes=outcomes, watch_config=watch_config, display=display, observer=observer
        )
        self._observer = observer
        self._ownership = ownership or SoleOwner()
        self._listen = listen
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._woken: set[int] = set()
        self._closing = False
        self._orphans: deque[int] | None = None
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="trmon-worker", daemon=True)

    def start(self) -> None:
        """Begin, with every run that has not ended or was not read to its end."""
        self._thread.start()

    def wake(self, run_ids: Iterable[int]) -> None:
        """Look at these runs soon; never blocks for long, may be called from any thread."""
        with self._changed:
            self._woken.update(run_ids)
            self._changed.notify()

    @property
    def alive(self) -> bool:
        """Whether runs are being watched."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop once everything that woke it is read and written, and every mind in memory has a checkpoint."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._listen()
        while self._has_work():
            began = time.monotonic()
            try:
                self._round()
                self._listen()
                least, longest = BREATH_SECONDS
                self._pause(min(max((time.monotonic() - began) / 2, least), longest))
            except Exception as error:
                self._observer.failed(error)
                log.error("round_failed", exc_info=error)
                self._pause(self._tick_seconds)
        self._rounds.rest()

    def _has_work(self) -> bool:
        """Wait until something woke the worker, or for a tick; false once it is closing and all is done."""
        with self._changed:
            if self._orphans is not None and not self._orphans and not self._woken and not self._closing:
                self._changed.wait(self._tick_seconds)
            return bool(self._woken) or not self._closing

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, timeout=seconds)

    def _round(self) -> None:
        self._share()
        self._adopt()
        with self._changed:
            woken, self._woken = self._woken, set()
        now = self._clock()
        self.wake(self._rounds.make(sorted(woken | self._rounds.due(now)), now=now))

    def _share(self) -> None:
        """Give up slots that others should have, once their runs are at rest, and find what is new in those gained."""
        if surplus := self._ownership.surplus():
            self._rounds.rest(surplus)
            self._ownership.release(surplus)
        fences = self._ownership.fences()
        gained = self._rounds.own(fences)
        if gained or self._orphans is None:
            unfinished = self._log.unfinished_runs(None if fences is None else gained)
            found = sorted(unfinished, key=_heard_at, reverse=True)
            self._orphans = deque([*(self._orphans or ()), *(run.id for run in found)])

    def _adopt(self) -> None:
        """Take up the runs that were left unfinished, those first that were heard of last."""
        if self._closing or self._orphans is None:
            return
        self.wake([self._orphans.popleft() for _ in range(min(ADOPTED_A_ROUND, len(self._orphans)))])


def _heard_at(run: Run) -> float:
    return run.created_at if run.last_report_at is None else run.last_report_at
