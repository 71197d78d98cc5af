"""Runs the worker in a child process, restarts it when it exits or hangs, and commits its updates in the service."""

from __future__ import annotations

import socket
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
from trmon.domain.errors import PASSING, NotReady, TrmonError
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.publish import RunView
from trmon.fleet.changes import PeriodicThread
from trmon.fleet.supervisor import STOP_SECONDS, ChildProcess
from trmon.store.repositories.run_log import RunLog
from trmon.worker.channel import (
    Beat,
    Channel,
    CommitRequest,
    CommitResult,
    RoundResult,
    RunsChanged,
    Shutdown,
)
from trmon.worker.scheduler import PassObserver, ViewSink

COMMAND = (sys.executable, "-m", "trmon.bootstrap.workers")

log = structlog.get_logger(__name__)


class ProcessObserver(PassObserver, Protocol):
    """Also counts what happens to the process."""

    def worker_ended(self, *, is_hung: bool) -> None:
        """Count an end that nobody asked for: the worker was killed because it hung, or exited."""


class WorkerProcess:
    """Keeps one worker process running: sends it changed runs, commits its updates and stores its views.

    Changed runs are sent only when the worker waits for them, so that a committing thread never blocks on the channel.
    """

    def __init__(
        self,
        settings: Settings,
        run_log: RunLog,
        *,
        views: ViewSink,
        observer: ProcessObserver,
        hung_seconds: float = HUNG_SECONDS,
    ) -> None:
        self._settings = settings
        self._log = run_log
        self._views = views
        self._observer = observer
        self._child = ChildProcess(COMMAND, hung_seconds=hung_seconds)
        self._beaten_at = time.monotonic()
        self._is_receiving = False
        self._hung: ChildProcess | None = None
        self._watcher = PeriodicThread("worker-watchdog", self._kill_if_hung)
        self._channel: Channel | None = None
        self._changed_runs: set[int] = set()
        self._in_flight: set[Future[None]] = set()
        self._received_rows: dict[int, tuple[BatchRow, ...]] = {}
        self._is_worker_waiting = False
        self._is_closing = False
        self._condition = Condition()
        self._thread = Thread(target=self._run, name="trmon-worker-process", daemon=True)

    def start(self) -> None:
        """Start the process; it reads unfinished runs from the database itself."""
        with self._condition:
            self._spawn()
        self._thread.start()
        self._watcher.start()

    def wake(self, run_ids: Iterable[int]) -> None:
        """Schedule a pass over these runs; never blocks for long, may be called from any thread."""
        with self._condition:
            self._changed_runs.update(run_ids)
            self._send_changes()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._thread.is_alive() and self._channel is not None

    @property
    def beat_age_seconds(self) -> float:
        """How long ago a worker last made progress; before the first beat, how long ago this object was made."""
        return time.monotonic() - self._beaten_at

    def close(self) -> None:
        """Let the worker finish its pending work, then end the process; kill it after 30 s."""
        with self._condition:
            self._is_closing = True
            if self._channel is not None:
                # The last changes are sent even if the worker is busy: it reads them before it exits.
                self._is_worker_waiting = True
                self._send_changes()
                _send(self._channel, Shutdown())
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            log.error("worker_killed", after_seconds=STOP_SECONDS)
            self._child.kill()
            self._thread.join()
        self._watcher.close()

    def _kill_if_hung(self) -> None:
        """Kill a silent worker: its updates in flight are committed, and the next one reads the rest again."""
        child = self._child
        # Not under the condition, whose holder may be sending to the worker that hangs. While a message is handled
        # here, beats wait in the channel.
        if child.is_hung(is_listening=self._is_receiving) and child is not self._hung:
            log.error("worker_hung", silent_seconds=child.hung_seconds)
            self._hung = child
            child.kill()

    def _run(self) -> None:
        while True:
            self._serve()
            with self._condition:
                in_flight = set(self._in_flight)
            # The next process reads the tables: what this one sent must be committed by then.
            wait(in_flight)
            with self._condition:
                if not self._is_closing:
                    log.error("worker_ended", status=self._child.status)
                    self._observer.worker_ended(is_hung=self._child is self._hung)
                self._restart()
                if self._channel is None:
                    return

    def _restart(self) -> None:
        """Start a new process, retrying until it starts; return without one if the service is closing."""
        while self._channel is None and not self._is_closing:
            if self._condition.wait_for(lambda: self._is_closing, self._child.restart_delay.seconds):
                return
            try:
                self._spawn()
            except OSError as error:
                log.error("worker_not_started", error=str(error))

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command, passed = [*COMMAND, str(theirs.fileno())], [theirs.fileno()]
            self._child = replace(self._child, command=command, pass_fds=passed)
            self._child.start()
        self._channel = Channel(ours.detach())
        _send(self._channel, self._settings)

    def _serve(self) -> None:
        """Handle the messages of one process until it ends."""
        channel = self._channel
        self._received_rows.clear()
        assert channel is not None
        try:
            while True:
                self._is_receiving = True
                message = channel.receive()
                self._is_receiving = False
                self._handle(message, channel)
        except (EOFError, OSError):
            with self._condition:
                self._channel, self._is_worker_waiting = None, False
        finally:
            self._is_receiving = False
            channel.close()
        self._child.wait()

    def _handle(self, message: Beat | CommitRequest | RoundResult, channel: Channel) -> None:
        if isinstance(message, Beat):
            self._beaten_at = time.monotonic()
            self._child.heard()
            return
        if isinstance(message, CommitRequest):
            self._commit(message, channel)
            return
        for view in message.views:
            self._views.put(self._with_row(view, message.rows.get(view.run.id)))
        self._received_rows.clear()
        for run_id in message.dropped:
            self._views.remove(run_id)
        for tally in message.tallies:
            self._observer.pass_committed(tally)
        for failure in message.failures:
            self._observer.pass_failed(TrmonError(failure))
        with self._condition:
            self._is_worker_waiting = True
            self._send_changes()

    def _with_row(self, view: RunView, key: BatchKey | None) -> RunView:
        """Return the view with its row, which may have been received in a CommitRequest."""
        if key is None:
            return view
        return replace(view, row=next(row for row in self._received_rows[view.run.id] if row.key == key))

    def _send_changes(self) -> None:
        """Send the changed runs if the worker waits for them; its next RoundResult says when it does again."""
        if self._channel is not None and self._is_worker_waiting and self._changed_runs:
            self._is_worker_waiting = False
            changes = RunsChanged({run_id: self._log.revision(run_id) for run_id in self._changed_runs})
            if _send(self._channel, changes):
                self._changed_runs.clear()

    def _commit(self, request: CommitRequest, channel: Channel) -> None:
        self._received_rows |= {update.run_id: update.batches for update in request.updates}
        try:
            futures = self._log.commit(request.updates)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the worker tries again
            _send(channel, CommitResult(request.number, (_plain(error),) * len(request.updates)))
            return
        with self._condition:
            self._in_flight.update(futures)
        _when_all_done(futures, lambda: self._reply(request.number, futures, channel))

    def _reply(self, number: int, futures: Sequence[Future[None]], channel: Channel) -> None:
        with self._condition:
            self._in_flight.difference_update(futures)
        errors = (future.exception() for future in futures)
        _send(channel, CommitResult(number, tuple(None if error is None else _plain(error) for error in errors)))


def _plain(error: BaseException) -> TrmonError:
    """Return an error that any process can read."""
    return NotReady(str(error)) if isinstance(error, PASSING) else TrmonError(repr(error))


def _when_all_done(futures: Sequence[Future[None]], callback: Callable[[], None]) -> None:
    """Call back once, on the thread that ends the last of the futures."""
    remaining = count(len(futures), -1)

    def on_done(_: Future[None]) -> None:
        # `next` on a count is atomic, so that several threads may end futures at once.
        if next(remaining) == 1:
            callback()

    for future in futures:
        future.add_done_callback(on_done)


def _send(channel: Channel, message: object) -> bool:
    """Send a message; return False if the process is gone: the next one reads the tables."""
    try:
        channel.send(message)
    except OSError:
        return False
    return True
