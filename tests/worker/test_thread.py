"""The worker over a real store: reports are appended as by the API, rows and alerts read from the database.

It notices a jump of the clock by one that is never set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import finished, report
from tests.fixtures.waiting import eventually
from tests.worker.watched_run import (
    ORIGIN,
    WATCH_CONFIG,
    RecordingObserver,
    next_report,
    receive,
    rows_of,
    run_passes,
    scheduler_over,
    started,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.runs.liveness import SilenceLimits
from trmon.domain.runs.run import RunState
from trmon.fleet.views import RunViewCache
from trmon.store import Store
from trmon.worker.thread import JUMP_SECONDS, ClockWatch, Worker
from trmon_client.core import wire


def events_of(store: Store, run_id: int) -> list[tuple[str, str, int]]:
    """Return the events of a run's alerts as (identity, state, step)."""
    listed = store.alerts.list(access=EVERYTHING, limit=100).items
    identities = sorted({item.alert.identity for item in listed if item.alert.run_id == run_id})
    pages = [store.alerts.events(name, access=EVERYTHING, limit=500) for name in identities]
    found = [event for page in pages for event in reversed(page.items)]
    return [(event.identity, event.state.value, event.step) for event in found]


def test_a_row_whose_reports_were_pruned_is_not_recomputed_from_a_late_one_alone(store: Store) -> None:
    scheduler = scheduler_over(store.run_log)
    run_id = receive(store, report(0, rank=0, world_size=2), at=0.0)
    for at in (0.0, 61.0):
        run_passes(scheduler, run_id, at=at)
    before = repr(rows_of(store, run_id))
    assert store.retention.prune(now=61.0, max_age_seconds=1e9, max_bytes_per_run=0, max_bytes=0).reports == 1
    receive(store, report(0, rank=1, world_size=2), report(0, rank=0, world_size=2), at=70.0)
    run_passes(scheduler, run_id, at=70.0)
    assert repr(rows_of(store, run_id)) == before
    assert store.run_log.progress(run_id).frontier.report_id == 3


def test_passes_over_an_idle_run_write_nothing(store: Store) -> None:
    flips = {"router_flip_rate": 0.5}
    steps = [next_report(step, health="noisy", scalars=flips) for step in range(24)]
    end = wire.Finish(**ORIGIN, sequence=1, finished=finished((23, None, 1)))
    run_id = receive(store, *steps, end, at=100.0)
    run_passes(scheduler_over(store.run_log), run_id, at=100.0)
    assert store.runs.by_id(run_id).state is RunState.FINISHED
    assert rows_of(store, run_id)[-1].key.step == 23

    written: list[frozenset[int]] = []
    store.on_commit(written.append)
    for _ in range(3):
        run_passes(scheduler_over(store.run_log), run_id, at=101.0)
    assert written == []


def test_a_paused_run_is_unloaded_and_continues_where_it_was(store: Store) -> None:
    scheduler = scheduler_over(store.run_log)
    run_id = receive(store, report(0, finished=finished((0, None, 1))), at=0.0)
    receive(store, wire.Pause(**ORIGIN, sequence=1), at=10.0)
    run_passes(scheduler, run_id, at=10.0)
    assert scheduler.loaded == {run_id}, "the newest step is judged after the grace period"
    run_passes(scheduler, run_id, at=70.0)
    assert scheduler.loaded == frozenset()
    receive(store, report(1, finished=finished((1, None, 1))), at=900.0)
    run_passes(scheduler, run_id, at=900.0)
    assert scheduler.loaded == {run_id}
    assert [(row.key.step, row.ordinal) for row in rows_of(store, run_id)] == [(0, 1), (1, 2)]


def test_commits_wake_the_worker_and_close_reads_every_message(store: Store) -> None:
    view_cache = RunViewCache()
    worker = started(store.run_log, views=view_cache)
    store.on_commit(worker.wake)
    run_id = receive(store, *(next_report(step) for step in range(5)), at=time.time())
    eventually(lambda: len(rows_of(store, run_id)) == 4)
    receive(store, wire.Finish(**ORIGIN, sequence=0, finished=finished((4, None, 1))), at=time.time())
    worker.wake([run_id])  # the writer may tell of the commit a moment after it acknowledged it
    worker.close()
    assert not worker.alive
    assert [row.key.step for row in rows_of(store, run_id)] == list(range(5))
    assert store.runs.by_id(run_id).state is RunState.FINISHED
    view = view_cache.get(run_id)
    assert view is not None
    assert view.row is not None
    assert view.row.key.step == 4


def test_a_batch_closes_by_the_clock_when_its_grace_ends(store: Store) -> None:
    clock, view_cache = [0.0], RunViewCache()
    run_id = receive(store, report(0), at=0.0)
    worker = started(store.run_log, views=view_cache, clock=lambda: clock[0], tick_seconds=0.01)
    eventually(lambda: view_cache.get(run_id) is not None)
    clock[0] = 61.0
    eventually(lambda: len(rows_of(store, run_id)) == 1)
    worker.close()


class FailingReports:
    """A store's reports that raise for one run until it is repaired."""

    def __init__(self, store: Store, *, run_id: int) -> None:
        self._reports = store.reports
        self._run_id = run_id
        self.repaired = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reports, name)

    def unread_of(self, run_id: int, read: Frontier, *, limit: int) -> Any:
        if run_id == self._run_id and not self.repaired.is_set():
            raise OSError("a page of the file is unreadable")
        return self._reports.unread_of(run_id, read, limit=limit)


def test_a_run_that_fails_does_not_stop_the_others_and_is_retried(store: Store) -> None:
    broken = receive(store, next_report(0), next_report(1), at=0.0, run="broken")
    sound = receive(store, next_report(0), next_report(1), at=0.0, run="sound")
    store.run_log.reports = reports = FailingReports(store, run_id=broken)
    clock, observer = [0.0], RecordingObserver()
    worker = started(store.run_log, observer=observer, clock=lambda: clock[0], tick_seconds=0.01)
    eventually(lambda: len(rows_of(store, sound)) == 1 and bool(observer.failures))
    assert not rows_of(store, broken)
    reports.repaired.set()
    clock[0] = 10.0
    eventually(lambda: len(rows_of(store, broken)) == 1)
    worker.close()
    assert len(rows_of(store, sound)) == 1


def test_a_log_that_cannot_be_read_at_the_start_is_read_again() -> None:
    log, observer = MemoryLog(), RecordingObserver()
    log.receive(next_report(0), next_report(1), at=0.0)
    log.broken = True
    worker = started(log, observer=observer, clock=lambda: 0.0, tick_seconds=0.01)
    eventually(lambda: bool(observer.failures))
    log.broken = False
    eventually(lambda: len(log.rows) == 1)
    worker.close()


@dataclass
class SettableClock:
    """The time of day, which a test can set as an operator does."""

    offset: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset


@contextmanager
def watching(store: Store, clock: SettableClock) -> Iterator[int]:
    """A worker over a run that trains."""
    run_id = receive(store, *(next_report(step) for step in range(25)), at=clock())
    worker = started(
        store.run_log,
        watch_config=replace(WATCH_CONFIG, patience=SilenceLimits(floor_seconds=6.0, factor=0.0, heartbeat_factor=0.0)),
        clock=clock,
        monotonic=time.monotonic,
        tick_seconds=0.05,
    )
    store.on_commit(worker.wake)
    eventually(lambda: len(rows_of(store, run_id)) == 24)
    try:
        yield run_id
    finally:
        worker.close()


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_a_healthy_run_does_not_stall_when_the_clock_jumps_and_a_silent_one_does(store: Store, jump: float) -> None:
    clock = SettableClock()
    with watching(store, clock) as run_id:
        clock.offset = jump
        for step in range(25, 30):
            time.sleep(0.4)
            receive(store, next_report(step), at=clock())
        eventually(lambda: len(rows_of(store, run_id)) == 29)
        assert store.runs.by_id(run_id).state is RunState.RUNNING
        assert events_of(store, run_id) == []
        eventually(lambda: store.runs.by_id(run_id).state is RunState.STALLED)
    assert [event[:2] for event in events_of(store, run_id)] == [(f"{run_id}/stalled", "firing")]


def test_after_a_restart_with_an_earlier_clock_a_silent_run_still_stalls(store: Store) -> None:
    clock = SettableClock()
    with watching(store, clock) as run_id:
        pass
    clock.offset = -86_400.0
    scheduler = scheduler_over(store.run_log)
    for seconds in (0.0, 119.0):
        run_passes(scheduler, run_id, at=clock() + seconds)
        assert store.runs.by_id(run_id).state is RunState.RUNNING
    run_passes(scheduler, run_id, at=clock() + 121.0)
    assert store.runs.by_id(run_id).state is RunState.STALLED


def test_a_closing_worker_leaves_a_long_backlog_to_the_next_one(store: Store) -> None:
    run_id = receive(store, next_report(0), at=time.time())
    views, workers = RunViewCache(), list[Worker]()

    def wake_again() -> None:
        """Keep the run busy, as a trainer that catches up does."""
        for worker in workers:
            worker.wake([run_id])

    worker = started(store.run_log, views=views, after_round=wake_again, finish_seconds=0.2)
    workers.append(worker)
    worker.wake([run_id])
    eventually(lambda: views.get(run_id) is not None)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(20.0)
    assert not worker.alive
    receive(store, next_report(1), at=time.time())
    run_passes(scheduler_over(store.run_log), run_id, at=time.time())
    assert [row.key.step for row in rows_of(store, run_id)] == [0]


DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY, JUMP_SECONDS, -JUMP_SECONDS])
def test_a_jump_is_returned_once(jump: float) -> None:
    now = {"wall": 1.8e9, "monotonic": 100.0}
    watch = ClockWatch(now["wall"], lambda: now["monotonic"])
    now = {"wall": 1.8e9 + 1000.0, "monotonic": 1100.0}
    assert watch.jump_seconds(now["wall"]) == 0.0
    now["wall"] += jump
    assert watch.jump_seconds(now["wall"]) == jump
    assert watch.jump_seconds(now["wall"]) == 0.0


def test_a_clock_that_drifts_has_not_jumped() -> None:
    now = {"wall": 1.8e9, "monotonic": 100.0}
    watch = ClockWatch(now["wall"], lambda: now["monotonic"])
    now["wall"] += 10.9
    now["monotonic"] += 10.0
    assert watch.jump_seconds(now["wall"]) == 0.0
