"""TimerQueue: which runs are due, each once."""

from __future__ import annotations

import math

from trmon.worker.scheduler import TimerQueue


def test_each_run_is_due_once() -> None:
    timers = TimerQueue()
    for run_id, at in ((1, 10.0), (2, 20.0), (3, 10.0)):
        timers.schedule(run_id, at)
    assert timers.pop_due(9.9) == set()
    assert timers.pop_due(10.0) == {1, 3}
    assert timers.pop_due(15.0) == set()
    assert timers.pop_due(25.0) == {2}


def test_a_run_that_is_rescheduled_is_due_only_at_its_last_time() -> None:
    timers = TimerQueue()
    for at in range(10, 200, 10):
        timers.schedule(1, float(at))
    assert timers.pop_due(189.0) == set()
    assert timers.pop_due(190.0) == {1}
    assert timers.pop_due(1000.0) == set()


def test_a_run_that_is_moved_forward_is_due_then_and_not_at_its_former_time() -> None:
    timers = TimerQueue()
    timers.schedule(1, 100.0)
    timers.schedule(1, 50.0)
    assert timers.pop_due(50.0) == {1}
    assert timers.pop_due(100.0) == set()


def test_a_run_that_is_cancelled_or_set_to_infinity_is_not_due_until_it_is_scheduled_again() -> None:
    timers = TimerQueue()
    timers.schedule(1, 10.0)
    timers.schedule(2, 10.0)
    timers.cancel(1)
    timers.schedule(2, math.inf)
    assert timers.pop_due(1e9) == set()
    timers.schedule(1, 20.0)
    assert timers.pop_due(1e9) == {1}


def test_the_queue_does_not_grow_when_a_run_is_rescheduled() -> None:
    timers = TimerQueue()
    for at in range(10_000):
        timers.schedule(at % 10, float(at))
        timers.pop_due(at - 100.0)
    assert len(timers._queue) <= 20
