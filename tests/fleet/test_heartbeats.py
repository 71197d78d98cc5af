"""Heartbeats: beats are sent once a second, only running time counts as silence, and restarts are delayed."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from threading import Timer

import pytest

from trmon.domain.health_check import HUNG_SECONDS
from trmon.fleet.heartbeats import MAX_DELAY_SECONDS, STABLE_SECONDS, START_SECONDS, Heartbeat, RestartDelay, Watchdog


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_progress_is_noted_each_time_and_sent_once_a_second(clock: Clock) -> None:
    sent: list[float] = []
    heartbeat = Heartbeat(lambda: sent.append(clock.now), clock=clock)
    for _ in range(25):
        clock.now += 0.125
        heartbeat.beat()
    assert sent == [1000.125, 1001.125, 1002.125, 1003.125]
    clock.now += 7.0
    assert heartbeat.age_seconds == 7.0


def test_waiting_for_another_process_beats_until_it_is_done_or_the_time_is_out() -> None:
    sent: list[None] = []
    heartbeat = Heartbeat(lambda: sent.append(None))
    done: Future[None] = Future()
    Timer(1.2, done.set_result, [None]).start()
    heartbeat.wait_for(done, timeout_seconds=60.0)
    assert len(sent) >= 2
    with pytest.raises(NotDone):
        heartbeat.wait_for(Future(), timeout_seconds=0.01)
    refused: Future[None] = Future()
    refused.set_exception(TimeoutError("the disk"))
    with pytest.raises(TimeoutError, match="the disk"):
        heartbeat.wait_for(refused, timeout_seconds=60.0)


def silent_for(watchdog: Watchdog, clock: Clock, *, seconds: float, is_listening: bool = True) -> bool:
    """Tick each second; return the last answer."""
    is_hung = False
    for _ in range(round(seconds)):
        clock.now += 1.0
        is_hung = watchdog.tick(is_listening=is_listening)
    return is_hung


def test_a_child_is_hung_after_30_s_of_silence(clock: Clock) -> None:
    watchdog = Watchdog(clock=clock)
    watchdog.heard()
    assert not silent_for(watchdog, clock, seconds=HUNG_SECONDS - 1)
    watchdog.heard()
    assert not silent_for(watchdog, clock, seconds=HUNG_SECONDS - 1)
    assert silent_for(watchdog, clock, seconds=1)


def test_a_child_has_longer_until_its_first_beat(clock: Clock) -> None:
    watchdog = Watchdog(clock=clock)
    assert not silent_for(watchdog, clock, seconds=START_SECONDS - 1)
    assert silent_for(watchdog, clock, seconds=1)


def test_the_time_in_which_the_parent_was_suspended_or_did_not_read_is_no_silence(clock: Clock) -> None:
    watchdog = Watchdog(clock=clock)
    watchdog.heard()
    silent_for(watchdog, clock, seconds=20)
    clock.now += 8 * 3600.0
    assert not watchdog.tick()
    assert not silent_for(watchdog, clock, seconds=100, is_listening=False)
    assert not silent_for(watchdog, clock, seconds=HUNG_SECONDS - 1)


def test_after_three_restarts_in_a_row_each_is_delayed_longer_until_a_process_is_stable(clock: Clock) -> None:
    delay = RestartDelay(clock=clock)
    assert delay.seconds <= 0.0, "the first start waits for nothing"
    waited = []
    for _ in range(11):
        delay.started()
        clock.now += 31.0
        delay.ended()
        waited.append(max(0.0, delay.seconds))
        clock.now += waited[-1]
    assert waited == [0.0, 0.0, 0.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[MAX_DELAY_SECONDS] * 3]
    delay.started()
    clock.now += STABLE_SECONDS
    delay.ended()
    assert delay.seconds <= 0.0


def test_two_starts_are_a_second_apart_also_if_the_first_failed(clock: Clock) -> None:
    delay = RestartDelay(clock=clock)
    delay.started()
    clock.now += 0.25
    assert delay.seconds == 0.75
