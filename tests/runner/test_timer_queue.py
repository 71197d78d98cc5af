"""Which runs the clock asks for, and how often."""

from __future__ import annotations

import math

from trmon.runner.timer_queue import TimerQueue


def test_each_run_rings_once_when_its_time_has_come() -> None:
    alarms = TimerQueue()
    for run_id, at in ((1, 10.0), (2, 20.0), (3, 10.0)):
        alarms.arm(run_id, at)
    assert alarms.ring(9.9) == set()
    assert alarms.ring(10.0) == {1, 3}
    assert alarms.ring(15.0) == set()
    assert alarms.ring(25.0) == {2}


def test_a_run_that_is_put_off_again_and_again_rings_at_its_last_time_alone() -> None:
    alarms = TimerQueue()
    for at in range(10, 200, 10):
        alarms.arm(1, float(at))
    assert alarms.ring(189.0) == set()
    assert alarms.ring(190.0) == {1}
    assert alarms.ring(1000.0) == set()


def test_a_run_whose_time_moves_nearer_rings_then_and_not_at_the_former_time() -> None:
    alarms = TimerQueue()
    alarms.arm(1, 100.0)
    alarms.arm(1, 50.0)
    assert alarms.ring(50.0) == {1}
    assert alarms.ring(100.0) == set()


def test_a_run_that_is_dropped_or_set_to_infinity_never_rings_until_it_is_set_again() -> None:
    alarms = TimerQueue()
    alarms.arm(1, 10.0)
    alarms.arm(2, 10.0)
    alarms.drop(1)
    alarms.arm(2, math.inf)
    assert alarms.ring(1e9) == set()
    alarms.arm(1, 20.0)
    assert alarms.ring(1e9) == {1}


def test_the_queue_does_not_grow_with_how_often_a_run_is_set() -> None:
    alarms = TimerQueue()
    for at in range(10_000):
        alarms.arm(at % 10, float(at))
        alarms.ring(at - 100.0)
    assert len(alarms._queue) <= 20
