"""Periodic threads keep their interval; ReportPoller finds every message once, even one that becomes visible late."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Semaphore
from time import sleep

import pytest

from trmon.fleet import changes
from trmon.fleet.changes import FULL_POLL_EVERY_SECONDS, OVERLAP_SECONDS, PeriodicThread, ReportPoller
from trmon.store.repositories.reports import MessageCursor


class Ids:
    """Reports by id that become visible when a test says so, on a clock set by hand."""

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        self.now = 0.0
        self.report_poller = ReportPoller(self, clock=lambda: self.now)

    def newest(self) -> MessageCursor:
        return {"report": max(self.runs, default=0), "notice": 0}

    def after(self, mark: MessageCursor) -> dict[tuple[int, str], int]:
        return {(run_id, "report"): id_ for id_, run_id in sorted(self.runs.items()) if id_ > mark["report"]}

    def poll(self, *, after_seconds: float) -> set[int]:
        self.now += after_seconds
        return self.report_poller.poll()


def test_a_message_is_found_once() -> None:
    ids = Ids()
    assert ids.poll(after_seconds=0.0) == set()
    ids.runs |= {1: 7, 2: 8, 3: 7}
    assert ids.poll(after_seconds=1.0) == {7, 8}
    assert ids.poll(after_seconds=1.0) == set()
    ids.runs[4] = 8
    assert ids.poll(after_seconds=1.0) == {8}


def test_an_id_that_becomes_visible_after_larger_ones_is_found() -> None:
    ids = Ids()
    ids.poll(after_seconds=0.0)
    ids.runs[5] = 7
    assert ids.poll(after_seconds=1.0) == {7}
    ids.runs[4] = 8
    assert ids.poll(after_seconds=OVERLAP_SECONDS - 1.0) == {8}


def test_an_id_that_becomes_visible_very_late_is_found_by_a_full_poll() -> None:
    ids = Ids()
    ids.poll(after_seconds=0.0)
    for id_ in range(5, 12):
        ids.runs[id_] = 7
        ids.poll(after_seconds=1.0)
    ids.runs[4] = 8
    assert ids.poll(after_seconds=1.0) == set()
    assert ids.poll(after_seconds=FULL_POLL_EVERY_SECONDS) == {8}


def test_a_transaction_that_was_open_at_the_first_poll_is_found() -> None:
    ids = Ids()
    ids.runs[100] = 7
    ids.poll(after_seconds=0.0)
    ids.runs[99] = 8
    assert ids.poll(after_seconds=1.0) == {8}


def test_memory_does_not_grow_with_the_number_of_messages() -> None:
    ids = Ids()
    for id_ in range(1, 500):
        ids.runs[id_] = id_
        ids.poll(after_seconds=1.0)
    assert len(ids.report_poller._seen) < 100
    assert len(ids.report_poller._marks) < 100


HOUR_SECONDS = 3600.0
SHORT_SECONDS = 0.02
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 0.3


class CountedPoller:
    """A poller with a short interval that counts its polls; a test sets `is_notified` and `is_failing`."""

    def __init__(self) -> None:
        self.is_notified = False
        self.is_failing = False
        self.times = Semaphore(0)
        self.poller = PeriodicThread("test", self._poll, every_seconds=SHORT_SECONDS, pause_seconds=0.0)
        self.poller.is_notified = lambda: self.is_notified

    def _poll(self) -> None:
        self.times.release()
        if self.is_failing:
            raise RuntimeError("the poll fails")

    def polls_again(self, *, within_seconds: float = PATIENCE_SECONDS) -> bool:
        return self.times.acquire(timeout=within_seconds)

    def is_waiting(self) -> bool:
        """Wait until it no longer polls by itself, and return whether it stays so."""
        while self.polls_again(within_seconds=MOMENT_SECONDS):
            pass
        return not self.polls_again(within_seconds=MOMENT_SECONDS)


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedPoller]:
    """A started poller whose interval while notified is an hour."""
    monkeypatch.setattr(changes, "NOTIFIED_POLL_SECONDS", HOUR_SECONDS)
    polled = CountedPoller()
    polled.poller.start()
    yield polled
    polled.poller.close()


def test_while_notified_it_polls_when_woken_and_by_itself_again_afterwards(polled: CountedPoller) -> None:
    polled.is_notified = True
    assert polled.is_waiting()
    polled.poller.wake()
    assert polled.polls_again()
    assert polled.is_waiting()
    polled.is_notified = False
    polled.poller.wake()
    assert all(polled.polls_again() for _ in range(3))


def test_after_a_failed_poll_it_polls_at_the_short_interval(polled: CountedPoller) -> None:
    polled.is_failing = polled.is_notified = True
    assert all(polled.polls_again() for _ in range(3))
    polled.is_failing = False
    assert polled.is_waiting()


def test_a_failure_is_counted_each_time() -> None:
    failures = Semaphore(0)

    def fail() -> None:
        raise OSError("no space left on device")

    thread = PeriodicThread("test", fail, every_seconds=0.001, pause_seconds=0.0, on_failure=failures.release)
    thread.start()
    assert all(failures.acquire(timeout=PATIENCE_SECONDS) for _ in range(2))
    thread.close()


def test_close_does_not_wait_for_a_task_of_many_steps() -> None:
    started = Event()

    def work() -> None:
        started.set()
        while thread.may_continue():
            sleep(0.001)

    thread = PeriodicThread("test", work, every_seconds=HOUR_SECONDS)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    thread.close()


def test_a_task_of_another_process_is_not_run_until_it_becomes_ours() -> None:
    calls, is_ours = Semaphore(0), Event()
    thread = PeriodicThread(
        "test", calls.release, every_seconds=SHORT_SECONDS, pause_seconds=0.0, is_ours=is_ours.is_set
    )
    thread.start()
    assert not calls.acquire(timeout=MOMENT_SECONDS)
    is_ours.set()
    assert calls.acquire(timeout=PATIENCE_SECONDS)
    thread.close()
