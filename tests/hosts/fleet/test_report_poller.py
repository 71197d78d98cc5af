"""The lookout: every message is found once, also one whose id became visible late."""

from __future__ import annotations

from trmon.hosts.fleet.report_poller import OVERLAP_SECONDS, SWEEP_EVERY_SECONDS, ReportPoller
from trmon.store.repositories.new_messages import Mark, MessageKind, NewMessage


class Ids:
    """Reports by id that become visible when a test says so, on a clock set by hand."""

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        self.now = 0.0
        self.report_poller = ReportPoller(self, clock=lambda: self.now)

    def mark(self) -> Mark:
        """See Arrivals."""
        return {MessageKind.REPORT: max(self.runs, default=0), MessageKind.NOTICE: 0}

    def after(self, mark: Mark) -> list[NewMessage]:
        """See Arrivals."""
        newest: dict[int, int] = {}
        for id_, run_id in self.runs.items():
            if id_ > mark[MessageKind.REPORT]:
                newest[run_id] = max(id_, newest.get(run_id, 0))
        return [NewMessage(run_id, MessageKind.REPORT, id_) for run_id, id_ in newest.items()]

    def look(self, *, after_seconds: float) -> set[int]:
        """Let time pass, and look."""
        self.now += after_seconds
        return self.report_poller.look()


def test_what_comes_is_found_once() -> None:
    ids = Ids()
    assert ids.look(after_seconds=0.0) == set()
    ids.runs |= {1: 7, 2: 8, 3: 7}
    assert ids.look(after_seconds=1.0) == {7, 8}
    assert ids.look(after_seconds=1.0) == set()
    ids.runs[4] = 8
    assert ids.look(after_seconds=1.0) == {8}


def test_an_id_that_becomes_visible_after_larger_ones_is_found() -> None:
    ids = Ids()
    ids.look(after_seconds=0.0)
    ids.runs[5] = 7
    assert ids.look(after_seconds=1.0) == {7}
    ids.runs[4] = 8
    assert ids.look(after_seconds=OVERLAP_SECONDS - 1.0) == {8}


def test_one_that_takes_very_long_is_found_by_a_sweep() -> None:
    ids = Ids()
    ids.look(after_seconds=0.0)
    for id_ in range(5, 12):
        ids.runs[id_] = 7
        ids.look(after_seconds=1.0)
    ids.runs[4] = 8
    assert ids.look(after_seconds=1.0) == set()
    assert ids.look(after_seconds=SWEEP_EVERY_SECONDS) == {8}


def test_what_was_under_way_at_the_first_look_is_found_too() -> None:
    ids = Ids()
    ids.runs[100] = 7
    ids.look(after_seconds=0.0)
    ids.runs[99] = 8
    assert ids.look(after_seconds=1.0) == {8}


def test_memory_does_not_grow_with_the_messages() -> None:
    ids = Ids()
    for id_ in range(1, 500):
        ids.runs[id_] = id_
        ids.look(after_seconds=1.0)
    assert len(ids.report_poller._seen) < 100
    assert len(ids.report_poller._marks) < 100


def test_an_id_that_becomes_visible_late_is_found_however_seldom_it_is_looked() -> None:
    ids = Ids()
    for _ in range(5):
        ids.look(after_seconds=5.0)
    ids.runs[5] = 7
    assert ids.look(after_seconds=5.0) == {7}
    ids.runs[4] = 8
    assert ids.look(after_seconds=5.0) == {8}
