"""ReportPoller finds every message once, even one whose id becomes visible late."""

from __future__ import annotations

from trmon.fleet.changes import FULL_POLL_EVERY_SECONDS, OVERLAP_SECONDS, ReportPoller
from trmon.store.repositories.reports import MessageCursor, MessageKind, NewMessage


class Ids:
    """Reports by id that become visible when a test says so, on a clock set by hand."""

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        self.now = 0.0
        self.report_poller = ReportPoller(self, clock=lambda: self.now)

    def newest(self) -> MessageCursor:
        """See NewMessageSource."""
        return {MessageKind.REPORT: max(self.runs, default=0), MessageKind.NOTICE: 0}

    def after(self, mark: MessageCursor) -> list[NewMessage]:
        """See NewMessageSource."""
        newest: dict[int, int] = {}
        for id_, run_id in self.runs.items():
            if id_ > mark[MessageKind.REPORT]:
                newest[run_id] = max(id_, newest.get(run_id, 0))
        return [NewMessage(run_id, MessageKind.REPORT, id_) for run_id, id_ in newest.items()]

    def poll(self, *, after_seconds: float) -> set[int]:
        """Advance the clock and poll."""
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


def test_an_id_that_becomes_visible_late_is_found_with_rare_polls() -> None:
    ids = Ids()
    for _ in range(5):
        ids.poll(after_seconds=5.0)
    ids.runs[5] = 7
    assert ids.poll(after_seconds=5.0) == {7}
    ids.runs[4] = 8
    assert ids.poll(after_seconds=5.0) == {8}
