"""Which runs get a pass first: live ones before quiet ones and history, and none of them never."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.fixtures.waiting import eventually
from tests.worker.watched_run import ORIGIN, receive, rows_of, scheduler_over, started, step_of
from trmon.domain.messages import NewestMessage
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.worker import scheduler as scheduling
from trmon.worker.messages import QUANTUM
from trmon.worker.scheduler import LIVE_SECONDS, Priority, Scheduler, WaitingRuns, priority_of
from trmon_client.core import wire

NOW = 10_000.0
N_HISTORY = 8


@pytest.mark.parametrize(
    ("newest", "priority"),
    [
        (None, Priority.QUIET),
        (NewestMessage(sent_at=None, is_unread=True), Priority.QUIET),
        (NewestMessage(sent_at=NOW, is_unread=True), Priority.LIVE),
        (NewestMessage(sent_at=NOW + 3600.0, is_unread=True), Priority.LIVE),
        (NewestMessage(sent_at=NOW - LIVE_SECONDS, is_unread=False), Priority.LIVE),
        (NewestMessage(sent_at=NOW - LIVE_SECONDS - 1.0, is_unread=True), Priority.HISTORY),
        (NewestMessage(sent_at=NOW - LIVE_SECONDS - 1.0, is_unread=False), Priority.QUIET),
        (NewestMessage(sent_at=0.0, is_unread=True), Priority.HISTORY),
    ],
)
def test_the_newest_report_says_whether_a_run_is_live(newest: NewestMessage | None, priority: Priority) -> None:
    assert priority_of(newest, now=NOW) is priority


def test_a_run_that_waits_keeps_its_place_unless_it_becomes_live() -> None:
    waiting = WaitingRuns()
    for run_id, priority in [(1, Priority.HISTORY), (2, Priority.HISTORY), (1, Priority.QUIET), (1, Priority.HISTORY)]:
        waiting.add(run_id, priority)
    assert (waiting.of(Priority.QUIET), waiting.of(Priority.HISTORY)) == ([], [1, 2])
    for run_id, priority in [(1, Priority.LIVE), (3, Priority.LIVE), (1, Priority.LIVE), (3, Priority.HISTORY)]:
        waiting.add(run_id, priority)
    assert (waiting.of(Priority.LIVE), waiting.of(Priority.HISTORY)) == ([1, 3], [2])
    for run_id in (1, 2, 3):
        waiting.remove(run_id)
    assert not waiting


def scalars_of(step: int, *, sent_at: float) -> wire.Scalars:
    return wire.Scalars(**ORIGIN, sequence=step, step=step, sent_at=sent_at, values={"reward": 1.0, "loss": 0.1})


def receive_history(store: Store, *, at: float, n_messages: int = 3 * QUANTUM) -> list[int]:
    """Store imported runs that were sent long ago, and return their ids."""
    sent = [scalars_of(step, sent_at=step + 1.0) for step in range(n_messages)]
    start = wire.Start(**ORIGIN, sent_at=0.5)
    return [receive(store, start, *sent, at=at, run=f"history-{i}") for i in range(N_HISTORY)]


def receive_live(store: Store, step: int, *, at: float) -> int:
    return receive(store, step_of(step, sent_at=at), at=at, run="live")


def n_rows(store: Store, run_ids: list[int]) -> list[int]:
    return [len(rows_of(store, run_id)) for run_id in run_ids]


def test_a_live_report_is_judged_before_the_history_that_came_before_it(store: Store) -> None:
    history = receive_history(store, at=time.time())
    with closing(started(store.run_log, finish_seconds=0.1)) as worker:
        store.on_commit(worker.wake)
        eventually(lambda: any(n_rows(store, history)))
        live = receive_live(store, 0, at=time.time())
        eventually(lambda: rows_of(store, live))
        assert min(n_rows(store, history)) < 3 * QUANTUM - 1
        eventually(lambda: min(n_rows(store, history)) == 3 * QUANTUM - 1)


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the time of each priority after one pass."""
    for name in ("LIVE_SECONDS", "QUIET_SECONDS", "OTHER_SECONDS"):
        monkeypatch.setattr(scheduling, name, 0.0)


def run_round(scheduler: Scheduler, *run_ids: int, at: float) -> None:
    scheduler.enqueue(run_ids, now=at)
    scheduler.run_round(now=at)


@pytest.mark.usefixtures("short_rounds")
def test_each_round_continues_with_live_quiet_and_past_runs_in_turn(store: Store) -> None:
    scheduler = scheduler_over(store.run_log)
    history = receive_history(store, at=NOW)
    bare = [receive(store, wire.Start(**ORIGIN, sent_at=NOW), at=NOW, run=f"bare-{i}") for i in range(N_HISTORY)]
    scheduler.enqueue([*history, *bare], now=NOW)
    for n in range(1, N_HISTORY + 1):
        at = NOW + n
        live = receive_live(store, n, at=at)
        run_round(scheduler, live, at=at)
        assert len(rows_of(store, live)) == n
        assert [bool(rows) for rows in n_rows(store, history)] == [True] * n + [False] * (N_HISTORY - n)
        assert [run_id in scheduler.loaded for run_id in bare] == [True] * n + [False] * (N_HISTORY - n)
    for _ in range(3 * N_HISTORY):
        run_round(scheduler, at=NOW + N_HISTORY)
    assert not scheduler.has_waiting
    assert n_rows(store, history) == [3 * QUANTUM - 1] * N_HISTORY


@pytest.mark.usefixtures("short_rounds")
def test_a_silent_live_run_stalls_while_a_backlog_is_read(store: Store) -> None:
    scheduler = scheduler_over(store.run_log)
    run_round(scheduler, live := receive_live(store, 0, at=NOW), at=NOW)
    scheduler.enqueue(receive_history(store, at=NOW), now=NOW)
    run_round(scheduler, at=NOW + 121.0)
    assert store.runs.by_id(live).state is RunState.STALLED
    assert scheduler.has_waiting


@pytest.mark.usefixtures("short_rounds")
def test_a_run_of_history_becomes_live_when_its_trainer_reports_again(store: Store) -> None:
    scheduler = scheduler_over(store.run_log)
    first, *others = receive_history(store, at=NOW)
    scheduler.enqueue([*others, first], now=NOW)
    receive(store, scalars_of(3 * QUANTUM, sent_at=NOW), at=NOW, run="history-0")
    for _ in range(4):
        run_round(scheduler, first, at=NOW)
    assert len(rows_of(store, first)) == 3 * QUANTUM
    assert sum(map(bool, n_rows(store, others))) == 4


def test_an_error_in_the_look_at_the_newest_messages_delays_no_run_for_ever(store: Store) -> None:
    class Unreadable:
        def __getattr__(self, name: str) -> object:
            return getattr(reports, name)

        def newest(self, run_ids: object) -> object:
            raise OSError("a page of the file is unreadable")

    live = receive_live(store, 0, at=NOW)
    reports, store.run_log.reports = store.run_log.reports, Unreadable()
    run_round(scheduler_over(store.run_log), live, at=NOW)
    assert len(rows_of(store, live)) == 1
