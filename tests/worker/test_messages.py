"""Messages: their order and pages, and rounds over many runs, in which each gets what it would read alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import pytest
from sqlalchemy import Engine, event, update

from tests.domain.memory_log import RUN_ID, MemoryLog
from tests.domain.trainer import report
from tests.store.builders import execute
from tests.worker.watched_run import ORIGIN, RecordingObserver, finish, receive, rows_of, scheduler_over, step_of
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.schema import tables
from trmon.worker import messages
from trmon.worker import scheduler as scheduling
from trmon.worker.messages import PAGE, QUANTUM, LogReader
from trmon.worker.scheduler import Scheduler
from trmon_client.core import wire


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


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


SMALL_PAGE, GROUP_SIZE = 40, 8


@pytest.fixture
def scheduler(store: Store, observer: RecordingObserver, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """A scheduler without any run in memory; a few messages fill its pages, and a few runs a group."""
    for module in (messages, scheduling):
        monkeypatch.setattr(module, "PAGE", SMALL_PAGE)
        monkeypatch.setattr(module, "QUANTUM", SMALL_PAGE)
    monkeypatch.setattr(scheduling, "GROUP_SIZE", GROUP_SIZE)
    return scheduler_over(store.run_log, observer)


@contextmanager
def queries_of(table: str) -> Iterator[list[str]]:
    """Yield a list that collects this thread's queries of a table: services of other tests may query too."""
    found: list[str] = []
    thread = get_ident()

    def record(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if get_ident() == thread and (f"FROM {table}" in statement or f"JOIN {table} " in statement):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    yield found
    event.remove(Engine, "before_cursor_execute", record)


def test_a_round_over_many_runs_reads_each_kind_once(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(GROUP_SIZE)]
    scheduler.run_passes(run_ids, now=0.0)
    for run in range(GROUP_SIZE):
        receive(
            store, step_of(1), wire.Scalars(**ORIGIN, sequence=1, step=1, values={"lr": 1.0}), at=10.0, run=f"run-{run}"
        )
    with queries_of("report") as of_reports, queries_of("notice") as of_notices:
        scheduler.run_passes(run_ids, now=10.0)
    assert (len(of_reports), len(of_notices)) == (1, 1)
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {2}
    assert {rows_of(store, run_id)[1].scalars["lr"] for run_id in run_ids} == {1.0}


def test_more_runs_than_one_group_are_all_read(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(GROUP_SIZE + 3)]
    for step in range(1, 3):
        scheduler.run_passes(run_ids, now=10.0 * step)
        for run in range(len(run_ids)):
            receive(store, step_of(step), at=10.0 * step, run=f"run-{run}")
    assert scheduler.run_passes(run_ids, now=30.0) == set()
    assert {len(rows_of(store, run_id)) for run_id in run_ids} == {3}


def test_a_damaged_report_stops_no_other_run(store: Store, scheduler: Scheduler, observer: RecordingObserver) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(5)]
    scheduler.run_passes(run_ids, now=0.0)
    for run in range(5):
        receive(store, step_of(1), at=10.0, run=f"run-{run}")
    report = tables.report
    newest = update(report).where(report.c.run_id == run_ids[2], report.c.step == 1)
    execute(store, newest.values(payload=b"\xc1"))
    assert scheduler.run_passes(run_ids, now=10.0) == set()
    # The chunk count in the damaged report is unknown: the batch waits until its grace ends.
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2, 2, 1, 2, 2]
    assert scheduler.pop_due(71.0) >= {run_ids[2]}
    scheduler.run_passes(run_ids, now=71.0)
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [2] * 5
    assert not observer.failures


def test_a_run_that_catches_up_with_others_gets_every_message_in_order(store: Store, scheduler: Scheduler) -> None:
    """The run is loaded, and has more than two pages of reports and scalars unread, then a finish."""
    others = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(1, 4)]
    behind = receive(store, step_of(0), at=0.0, run="run-0")
    scheduler.run_passes([behind, *others], now=0.0)
    n_steps = 2 * SMALL_PAGE + 10
    for step in range(1, n_steps):
        scalars = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"lr": float(step)})
        receive(store, scalars, step_of(step), at=float(step), run="run-0")
    receive(store, finish(n_steps - 1), at=float(n_steps), run="run-0")
    for run in range(1, 4):
        receive(store, step_of(1), at=1.0, run=f"run-{run}")
    more, n_rounds = {behind, *others}, 0
    while more:
        more = scheduler.run_passes(sorted(more), now=float(n_steps))
        n_rounds += 1
        assert more <= {behind}
    assert n_rounds == 3
    rows = rows_of(store, behind)
    assert [row.key.step for row in rows] == list(range(n_steps))
    assert [row.scalars["lr"] for row in rows[1:]] == [float(step) for step in range(1, n_steps)]
    assert store.runs.by_id(behind).state is RunState.FINISHED
    assert [len(rows_of(store, run_id)) for run_id in others] == [2, 2, 2]


def test_a_run_that_is_behind_does_not_make_the_others_read_alone(store: Store, scheduler: Scheduler) -> None:
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(4)]
    scheduler.run_passes(run_ids, now=0.0)
    for step in range(1, 2 * SMALL_PAGE + 10):
        receive(store, step_of(step), at=1.0, run="run-0")
    assert scheduler.run_passes(run_ids, now=1.0) == {run_ids[0]}
    with queries_of("report") as of_reports:
        assert scheduler.run_passes(run_ids, now=2.0) == {run_ids[0]}
    assert len(of_reports) == 2, "once for the one that is behind, once for all others"


def test_a_run_beyond_a_quantum_is_cut(store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (messages, scheduling):
        monkeypatch.setattr(module, "QUANTUM", 8)
    run_ids = [receive(store, step_of(0), at=0.0, run=f"run-{run}") for run in range(4)]
    scheduler.run_passes(run_ids, now=0.0)
    for step in range(1, 13):
        receive(store, step_of(step), at=float(step), run="run-0")
    receive(store, step_of(1), at=1.0, run="run-1")
    assert scheduler.run_passes(run_ids, now=12.0) == {run_ids[0]}
    assert [len(rows_of(store, run_id)) for run_id in run_ids] == [8, 2, 1, 1]
    assert scheduler.run_passes(run_ids, now=12.0) == set()
    assert len(rows_of(store, run_ids[0])) == 13
