"""LogReader: the order and the pages in which messages are read."""

from __future__ import annotations

from tests.domain.memory_log import RUN_ID, MemoryLog
from tests.domain.trainer import report
from trmon.domain.model.messages import StoredReport
from trmon.domain.state.run_update import Frontier
from trmon.runner.log_reader import PAGE, LogReader
from trmon_client.core import wire

ORIGIN = {"attempt": "a", "launch": "launch-1"}


def kinds(log: MemoryLog) -> list[list[str]]:
    """Return the kinds of messages, page by page."""
    reader, pages = LogReader(log, RUN_ID, read=Frontier()), []
    while True:
        page = reader.next_page()
        pages.append(["report" if isinstance(m, StoredReport) else type(m.message).__name__ for m in page.messages])
        if page.caught_up:
            return pages


def test_reports_and_notices_are_read_in_the_order_in_which_they_came() -> None:
    log = MemoryLog()
    log.receive(wire.Start(**ORIGIN), at=0.0)
    log.receive(report(0), at=1.0)
    log.receive(wire.Pause(**ORIGIN, sequence=1), at=2.0)
    log.receive(report(1), at=3.0)
    assert kinds(log) == [["Start", "report", "Pause", "report"]]


def test_messages_of_one_request_are_in_the_order_of_the_trainers_clock() -> None:
    log = MemoryLog()
    log.receive(report(0, sent_at=1.0), wire.Pause(**ORIGIN, sequence=1, sent_at=2.0), at=5.0)
    assert kinds(log) == [["report", "Pause"]]


def test_a_finish_is_not_read_before_the_reports_that_came_before_it() -> None:
    log = MemoryLog()
    message = report(0)
    for place in range(PAGE + 5):
        log.receive(message, at=float(place))
    log.receive(wire.Finish(**ORIGIN, sequence=1), at=float(PAGE + 5))
    first, second = kinds(log)
    assert set(first) == {"report"}
    assert second == ["report"] * 5 + ["Finish"]


def test_reports_after_a_full_page_of_notices_wait_for_the_next() -> None:
    log = MemoryLog()
    for place in range(PAGE + 1):
        log.receive(wire.Scalars(**ORIGIN, sequence=place, step=0, values={}), at=float(place))
    log.receive(report(0), at=float(PAGE + 1))
    first, second = kinds(log)
    assert set(first) == {"Scalars"}
    assert second == ["Scalars", "report"]
