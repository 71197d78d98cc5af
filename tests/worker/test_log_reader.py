"""LogReader: the order and the pages in which messages are read."""

from __future__ import annotations

from tests.domain.memory_log import RUN_ID, MemoryLog
from tests.domain.trainer import report
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.run_update import Frontier
from trmon.worker.messages import PAGE, QUANTUM, LogReader
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
    for place in range(QUANTUM + 5):
        log.receive(message, at=float(place))
    log.receive(wire.Finish(**ORIGIN, sequence=1), at=float(QUANTUM + 5))
    first, second = kinds(log)
    assert set(first) == {"report"}
    assert second == ["report"] * 6 + ["Finish"]


def test_reports_after_a_full_page_of_notices_wait_for_the_next() -> None:
    log = MemoryLog()
    for place in range(QUANTUM + 1):
        log.receive(wire.Scalars(**ORIGIN, sequence=place, step=0, values={}), at=float(place))
    log.receive(report(0), at=float(QUANTUM + 1))
    first, second = kinds(log)
    assert set(first) == {"Scalars"}
    assert second == ["Scalars", "Scalars", "report"]


def test_reports_that_follow_unread_scalars_wait_for_them_even_if_both_kinds_fill_a_page() -> None:
    """Four messages of scalars for each report: a page of them ends before a page of reports does."""
    log = MemoryLog()
    for step in range(8 * QUANTUM):
        scalars = [wire.Scalars(**ORIGIN, sequence=step, step=step, values={}) for _ in range(4)]
        log.receive(report(step), *scalars, at=float(step))
    pages = kinds(log)
    assert [page.count("report") for page in pages[:-1]] == [QUANTUM // 4 - 1] * len(pages[:-1])
    assert all(page.count("Scalars") == 4 * page.count("report") for page in pages)
    assert sum(page.count("report") for page in pages) == 8 * QUANTUM


def test_a_request_of_one_kind_is_read_in_parts() -> None:
    log = MemoryLog()
    log.receive(*(report(step) for step in range(QUANTUM + 3)), at=1.0)
    assert kinds(log) == [["report"] * QUANTUM, ["report"] * 3]


def test_a_request_of_both_kinds_is_read_in_parts_of_a_large_page() -> None:
    """Else its first reports would be read without their scalars, which may be behind all reports."""
    log = MemoryLog()
    log.receive(*(report(step) for step in range(PAGE + 3)), wire.Pause(**ORIGIN, sequence=1), at=1.0)
    assert kinds(log) == [["Pause"] + ["report"] * PAGE, ["report"] * 3]


def test_every_message_is_read_if_the_servers_clock_was_set_back() -> None:
    log = MemoryLog()
    for step in range(2 * QUANTUM):
        at = float(step or 10 * QUANTUM)
        log.receive(report(step), wire.Scalars(**ORIGIN, sequence=step, step=step, values={}), at=at)
    pages = kinds(log)
    assert [sum(page.count(kind) for page in pages) for kind in ("report", "Scalars")] == [2 * QUANTUM] * 2
    assert len(pages) == 3
