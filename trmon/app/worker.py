"""The worker: a thread that makes rounds when reports come and, each second, when the clock asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Condition, Thread

import structlog

from trmon.app.live import Live
from trmon.app.portrait import Vigil
from trmon.app.rounds import Observer, Rounds
from trmon.domain.ports import RunLog

TICK_SECONDS = 1.0
BREATH_SECONDS = 0.03
"""Rest between two rounds: reports that come meanwhile share the queries and the commit of one pass."""

log = structlog.get_logger(__name__)


class Worker:
    """Owns every run of the embedded service from `start` to `close`."""

    def __init__(
        self,
        run_log: RunLog,
        *,
        vigil: Vigil,
        live: Live,
        observer: Observer,
        clock: Callable[[], float],
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._log = run_log
        self._rounds = Rounds(run_log, vigil=vigil, live=live, observer=observer)
        self._observer = observer
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._woken: set[int] = set()
        self._closing = False
        self._adopted = False
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
        """Stop once everything that woke it is read and written, and every mind has a checkpoint."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._has_work():
            try:
                self._round()
                self._pause(BREATH_SECONDS)
            except Exception as error:
                self._observer.failed(error)
                log.error("round_failed", exc_info=error)
                self._pause(self._tick_seconds)
        self._rounds.rest()

    def _has_work(self) -> bool:
        """Wait until something woke the worker, or for a tick; false once it is closing and all is done."""
        with self._changed:
            if self._adopted and not self._woken and not self._closing:
                self._changed.wait(self._tick_seconds)
            return bool(self._woken) or not self._closing

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, timeout=seconds)

    def _round(self) -> None:
        if not self._adopted:
            self.wake(run.id for run in self._log.unfinished_runs())
            self._adopted = True
        with self._changed:
            woken, self._woken = self._woken, set()
        now = self._clock()
        self.wake(self._rounds.make(sorted(woken | self._rounds.due(now)), now=now))
