"""The attendant: in the service's process, what stands for the worker's process, and starts it again if it dies."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from itertools import count
from threading import Condition, Thread
from typing import Protocol

import structlog

from trmon.config.settings import Settings
from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.errors import TrmonError
from trmon.domain.model.identity import BatchKey
from trmon.domain.state.run_update import RunUpdate
from trmon.hosts.subprocess.channel import Channel, CommitRequest, CommitResult, RoundResult, RunsChanged, Shutdown
from trmon.runner.scheduler import PassObserver, ViewSink
from trmon.views.run_view_cache import RunView

COMMAND = (sys.executable, "-m", "trmon.bootstrap.subprocess_main")
BACKOFF_SECONDS = 1.0
"""Shortest time between two starts."""
STOP_SECONDS = 30.0
"""How long the worker may take to bring its runs to rest."""

log = structlog.get_logger(__name__)


class RunUpdateLog(Protocol):
    """What the attendant asks of the store."""

    def commit(self, outcomes: Sequence[RunUpdate]) -> list[Future[None]]:
        """Write outcomes."""

    def revision(self, run_id: int) -> int:
        """Return a number that changes when somebody changes the run."""


class WorkerProcess:
    """Keeps one worker's process at work: news go to it, outcomes are written and views shown for it.

    News are sent only when the worker listens, so that a thread that commits never waits for it.
    """

    def __init__(self, settings: Settings, run_log: RunUpdateLog, *, display: ViewSink, observer: PassObserver) -> None:
        self._settings = settings
        self._log = run_log
        self._display = display
        self._observer = observer
        self._woken: set[int] = set()
        self._under_way: set[Future[None]] = set()
        self._written: dict[int, tuple[BatchRow, ...]] = {}
        self._line: Channel | None = None
        self._is_listening = False
        self._closing = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="trmon-attendant", daemon=True)

    def start(self) -> None:
        """Start the process; it reads for itself what was left unfinished."""
        with self._changed:
            self._spawn()
        self._thread.start()

    def wake(self, run_ids: Iterable[int]) -> None:
        """Have these runs looked at soon; never blocks for long, may be called from any thread."""
        with self._changed:
            self._woken.update(run_ids)
            self._tell()

    @property
    def alive(self) -> bool:
        """Whether runs are being watched."""
        return self._thread.is_alive() and self._line is not None

    def close(self) -> None:
        """Let the worker bring every run to rest, and end its process."""
        with self._changed:
            self._closing = True
            if self._line is not None:
                # What came last is told in any case: the worker reads it before it leaves.
                self._is_listening = True
                self._tell()
                _send(self._line, Shutdown())
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            log.error("worker_killed", after_seconds=STOP_SECONDS)
            self._process.kill()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._attend()
            with self._changed:
                under_way = set(self._under_way)
            # The next one reads from the tables what this one had written.
            wait(under_way)
            with self._changed:
                if not self._closing:
                    log.error("worker_ended", status=self._process.returncode)
                self._start_another()
                if self._line is None:
                    return

    def _start_another(self) -> None:
        """Start one again and again until it can be done, but not while the service closes."""
        while self._line is None and not self._closing:
            waited_seconds = time.monotonic() - self._started_at
            if self._changed.wait_for(lambda: self._closing, BACKOFF_SECONDS - waited_seconds):
                return
            try:
                self._spawn()
            except OSError as error:
                log.error("worker_not_started", error=str(error))

    def _spawn(self) -> None:
        self._started_at = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [*COMMAND, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603 - our own
        self._line = Channel(ours.detach())
        _send(self._line, self._settings)

    def _attend(self) -> None:
        """Hear one process to its end."""
        line = self._line
        self._written.clear()
        assert line is not None
        try:
            while True:
                self._hear(line.receive(), line)
        except (EOFError, OSError):
            with self._changed:
                self._line, self._is_listening = None, False
        finally:
            line.close()
        self._process.wait()

    def _hear(self, message: CommitRequest | RoundResult, line: Channel) -> None:
        if isinstance(message, CommitRequest):
            self._write(message, line)
            return
        for view in message.views:
            self._display.show(self._whole(view, message.rows.get(view.run.id)))
        self._written.clear()
        for run_id in message.dropped:
            self._display.drop(run_id)
        for tally in message.tallies:
            self._observer.passed(tally)
        for failure in message.failures:
            self._observer.failed(TrmonError(failure))
        with self._changed:
            self._is_listening = True
            self._tell()

    def _whole(self, view: RunView, key: BatchKey | None) -> RunView:
        """Return a view with its row, which may have come in an outcome."""
        if key is None:
            return view
        return replace(view, row=next(row for row in self._written[view.run.id] if row.key == key))

    def _tell(self) -> None:
        """Send the news there are, if the worker listens; it will say when it does again."""
        if self._line is not None and self._is_listening and self._woken:
            self._is_listening = False
            news = RunsChanged({run_id: self._log.revision(run_id) for run_id in self._woken})
            if _send(self._line, news):
                self._woken.clear()

    def _write(self, message: CommitRequest, line: Channel) -> None:
        self._written |= {outcome.run_id: outcome.batches for outcome in message.outcomes}
        try:
            futures = self._log.commit(message.outcomes)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the worker tries again
            _send(line, CommitResult(message.number, (str(error),) * len(message.outcomes)))
            return
        with self._changed:
            self._under_way.update(futures)
        _when_done(futures, lambda: self._answer(message.number, futures, line))

    def _answer(self, number: int, futures: Sequence[Future[None]], line: Channel) -> None:
        with self._changed:
            self._under_way.difference_update(futures)
        found = (future.exception() for future in futures)
        _send(line, CommitResult(number, tuple(None if error is None else str(error) for error in found)))


def _when_done(futures: Sequence[Future[None]], then: Callable[[], None]) -> None:
    """Call it once, when the last one of some futures has ended, by whom ends it."""
    missing = count(len(futures), -1)

    def ended(_: Future[None]) -> None:
        # One step of an iterator is whole, whichever threads end futures at once.
        if next(missing) == 1:
            then()

    for future in futures:
        future.add_done_callback(ended)


def _send(line: Channel, message: object) -> bool:
    """Send a message; return whether anybody was there. If not, the next process reads the tables."""
    try:
        line.send(message)
    except OSError:
        return False
    return True
