"""The worker thread: runs a round of passes when messages arrive and, each second, for runs whose timer is due."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from operator import attrgetter
from threading import Condition, Thread

import structlog

from trmon.domain.ownership import Ownership
from trmon.store.repositories.run_log import RunLog
from trmon.worker.pass_changes import RunUpdateWriter
from trmon.worker.run_context import WatchConfig
from trmon.worker.scheduler import PassObserver, Scheduler, ViewSink

JUMP_SECONDS = 5.0
"""A smaller difference between the clocks is their drift, or a slow round; no limit of the runner is that short."""
TICK_SECONDS = 1.0
PAUSE_SECONDS = (0.015, 0.25)
"""Shortest and longest pause after a round, which lasts half as long as the round: the API gets its turn, and messages
that arrive meanwhile share the queries and the commit of one pass. Most of a page's delay is this and one round. While
runs wait the pause is the shortest."""
FINISH_SECONDS = 10.0
"""How long a closing worker continues with unread messages, which the next one reads otherwise: who ends a process
kills it after 30 s, and the checkpoints of a killed worker are missing."""

log = structlog.get_logger(__name__)


class ClockWatch:
    """Compares the clock with the monotonic one from call to call."""

    def __init__(self, now: float, monotonic: Callable[[], float]) -> None:
        """Args: now, monotonic: seconds."""
        self._monotonic = monotonic
        self._difference = now - monotonic()

    def jump_seconds(self, now: float) -> float:
        """Return by how much the clock was set since the last call that returned it, 0 for less than 5 s.

        Args: now: the time of the clock; the next call returns a jump that comes after it was read.
        """
        difference = now - self._monotonic()
        jump = difference - self._difference
        if abs(jump) < JUMP_SECONDS:
            return 0.0
        self._difference = difference
        return jump


class Worker:
    """Evaluates the runs that this process owns, from `start` to `close`."""

    def __init__(
        self,
        run_log: RunLog,
        *,
        writer: RunUpdateWriter,
        watch_config: WatchConfig,
        views: ViewSink,
        observer: PassObserver,
        ownership: Ownership | None = None,
        after_round: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        tick_seconds: float = TICK_SECONDS,
        finish_seconds: float = FINISH_SECONDS,
    ) -> None:
        """Args: after_round: called on the worker's thread after each round, and before the first.

        monotonic: a clock that is never set, to notice that `clock` was; without it nothing is noticed.
        """
        self._log = run_log
        self._scheduler = Scheduler(run_log, writer=writer, watch_config=watch_config, views=views, observer=observer)
        self._observer = observer
        self._heartbeat = watch_config.heartbeat
        self._ownership = ownership or Ownership()
        self._after_round = after_round
        self._clock = clock
        self._clock_watch = ClockWatch(clock(), monotonic or clock)
        self._tick_seconds = tick_seconds
        self._finish_seconds = finish_seconds
        self._finish_by = math.inf
        self._woken: set[int] = set()
        self._is_closing = False
        self._is_resumed = False
        self._condition = Condition()
        self._thread = Thread(target=self._run, name="trmon-worker", daemon=True)

    def start(self) -> None:
        """Start, with every run that is unfinished or has unread messages."""
        self._thread.start()

    def wake(self, run_ids: Iterable[int]) -> None:
        """Schedule a pass over these runs; never blocks for long, may be called from any thread."""
        with self._condition:
            self._woken.update(run_ids)
            self._condition.notify()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def beat_age_seconds(self) -> float:
        """How long ago the worker last made progress."""
        return self._heartbeat.age_seconds

    def close(self) -> None:
        """Stop once the scheduled passes are committed, or after 10 s, and every loaded run has a checkpoint."""
        with self._condition:
            self._is_closing = True
            self._finish_by = time.monotonic() + self._finish_seconds
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._after_round()
        while self._wait_for_work():
            started_at = time.monotonic()
            self._heartbeat.beat()
            try:
                self._run_round()
                self._after_round()
                shortest, longest = PAUSE_SECONDS
                seconds = 0.0 if self._scheduler.has_waiting else (time.monotonic() - started_at) / 2
                self._pause(min(max(seconds, shortest), longest))
            except Exception as error:
                self._observer.pass_failed(error)
                log.error("round_failed", exc_info=error)
                self._pause(self._tick_seconds)
        self._scheduler.write_checkpoints()

    def _wait_for_work(self) -> bool:
        """Wait for a wake-up or a tick; return False once the worker is closing and has no work or time left."""
        with self._condition:
            if self._is_resumed and not self._has_work() and not self._is_closing:
                self._condition.wait(self._tick_seconds)
            # Looked at again: a wake-up and the end may come in the same wait.
            return not self._is_closing or (self._has_work() and time.monotonic() < self._finish_by)

    def _has_work(self) -> bool:
        return bool(self._woken) or self._scheduler.has_waiting

    def _pause(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closing, timeout=seconds)

    def _run_round(self) -> None:
        # Read once: a jump between two readings would count as silence of every run.
        now = self._clock()
        self._reload_after_jump(now)
        self._update_ownership(now)
        with self._condition:
            woken, self._woken = self._woken, set()
        self._scheduler.enqueue(sorted(woken), now=now)
        self._scheduler.run_round(now=now)

    def _reload_after_jump(self, now: float) -> None:
        """Treat a jump of the clock as a downtime: load every unfinished run again, and count silence from now on."""
        if jump := self._clock_watch.jump_seconds(now):
            log.warning("clock_jumped", seconds=round(jump, 3))
            self._scheduler.unload_all()
            self._is_resumed = False

    def _update_ownership(self, now: float) -> None:
        """Release surplus slots after writing their checkpoints, and enqueue the unfinished runs of slots gained."""
        if surplus := self._ownership.surplus():
            self._scheduler.write_checkpoints(surplus)
            self._ownership.release(surplus)
        fences = self._ownership.fences()
        gained = self._scheduler.set_fences(fences)
        if gained or not self._is_resumed:
            slots = gained if self._is_resumed else frozenset(fences or ())
            self._is_resumed = False  # until the query has succeeded
            unfinished = self._log.unfinished_runs(None if fences is None else slots)
            newest_first = sorted(unfinished, key=attrgetter("newest_at"), reverse=True)
            self._scheduler.enqueue([run.id for run in newest_first], now=now)
            self._is_resumed = True
