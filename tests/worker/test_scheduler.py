"""Passes over a run: when batches close, how rows are revised, what survives a restart; timers, each due once."""

from __future__ import annotations

import math

import pytest

from tests.domain.trainer import finished, report
from tests.worker.watched_run import ORIGIN, WatchedRun, next_report, train
from trmon.domain.identity import BatchKey
from trmon.worker.pass_changes import CHECKPOINT_BATCHES, LEAST_CHECKPOINT_BATCHES, is_checkpoint_due
from trmon.worker.scheduler import TimerQueue
from trmon_client.core import wire


def test_a_batch_closes_when_the_next_report_states_its_chunk_count() -> None:
    watched = WatchedRun()
    watched.receive(report(0), at=0.0)
    assert not watched.log.rows
    watched.receive(report(1, finished=finished((0, None, 1))), at=10.0)
    (row,) = watched.log.rows.values()
    assert (row.key.step, row.ordinal, row.complete, row.n_sequences, row.mismatches) == (0, 1, True, 8, 0)
    assert row.signals["total_kl_k3"] > 0


def test_a_late_chunk_revises_the_row_and_is_not_folded_again() -> None:
    watched = WatchedRun()
    watched.receive(report(0), at=0.0)
    watched.receive(report(1, finished=finished((0, None, 2))), at=10.0)
    watched.tick(80.0)
    key = BatchKey(1, 0, None)
    before = watched.log.rows[key]
    assert not before.complete
    watched.receive(report(0, chunk=1), at=90.0)
    after = watched.log.rows[key]
    assert (after.ordinal, after.closed_at) == (before.ordinal, before.closed_at)
    assert (after.revised, after.complete, after.n_sequences) == (True, True, 16)
    assert len(watched.log.rows) == 2
    assert [tally.late_reports for tally in watched.observer.passes][-1] == 1


def test_a_batch_that_comes_after_its_successors_is_stored_but_not_folded() -> None:
    watched = WatchedRun()
    train(watched, range(2, 5))
    watched.receive(report(0, finished=finished((0, None, 1))), at=50.0)
    late = watched.log.rows[BatchKey(1, 0, None)]
    assert (late.ordinal, late.revised) == (3, True)
    assert math.isnan(late.signals["step_seconds"])
    watched.restart()
    watched.receive(report(5, finished=finished((4, None, 1))), at=60.0)
    assert watched.log.rows[BatchKey(1, 4, None)].ordinal == 4


def test_restarts_change_no_row_decision_alert_or_delivery() -> None:
    undisturbed, restarted, without_checkpoint = WatchedRun(), WatchedRun(), WatchedRun()
    for step in range(32):
        health = "corrupt" if 24 <= step < 31 else "healthy"
        message = next_report(step, health=health)
        scalars = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"grad_norm": float(step)})
        for watched in (undisturbed, restarted, without_checkpoint):
            watched.receive(message, scalars, at=10.0 * step)
        restarted.restart()
        without_checkpoint.log.forget_checkpoint()
        without_checkpoint.restart()
    told = [(state, step) for rule, state, step in undisturbed.log.told() if rule == "corrupt_logprobs"]
    assert told == [("firing", 27)]
    for other in (restarted, without_checkpoint):
        assert repr(other.log.rows) == repr(undisturbed.log.rows)
        assert other.log.decisions == undisturbed.log.decisions
        assert other.log.alert_events == undisturbed.log.alert_events
        assert other.log.deliveries == undisturbed.log.deliveries
        assert other.log.alerts == undisturbed.log.alerts


def test_a_failed_commit_is_retried_and_no_change_is_lost_or_repeated() -> None:
    watched = WatchedRun()
    train(watched, range(25), health="corrupt")
    watched.log.receive(report(25, health="corrupt", finished=finished((24, None, 1))), at=250.0)
    watched.log.broken = True
    watched.tick(250.0)
    assert isinstance(watched.observer.failures[0], OSError)
    watched.log.broken = False
    watched.tick(250.5)
    assert BatchKey(1, 24, None) not in watched.log.rows
    assert watched.scheduler.pop_due(251.0) == {1}
    watched.tick(251.0)
    assert watched.log.rows[BatchKey(1, 24, None)].ordinal == 25
    assert [step for rule, _, step in watched.log.told() if rule == "corrupt_logprobs"] == [3]


def test_a_deleted_run_is_dropped_without_a_failure() -> None:
    watched = WatchedRun()
    assert watched.scheduler.run_passes({77}, now=0.0) == set()
    assert not watched.observer.failures


def test_a_backlog_of_many_pages_closes_in_order_and_no_batch_by_its_grace() -> None:
    watched = WatchedRun()
    for step in range(20):
        for chunk in range(30):
            counts = finished((step - 1, None, 30)) if step and not chunk else []
            watched.log.receive(report(step, chunk=chunk, finished=counts), at=0.01 * (30 * step + chunk))
    watched.tick(5000.0)
    watched.tick(5100.0)
    rows = sorted(watched.log.rows.values(), key=lambda row: row.ordinal)
    assert [row.key.step for row in rows] == list(range(20))
    assert all(row.complete and row.n_sequences == 240 and not row.revised for row in rows)


def test_a_newer_attempt_takes_over_and_late_batches_of_the_older_one_are_not_folded() -> None:
    watched = WatchedRun()
    train(watched, range(10))
    again = {"attempt": "b", "launch": "launch-2"}
    watched.receive(report(5, **again), at=100.0)
    watched.receive(report(6, **again, finished=finished((5, None, 1))), at=110.0)
    watched.tick(171.0)
    assert watched.log.rows[BatchKey(2, 5, None)].ordinal == 10
    tail = watched.log.rows[BatchKey(1, 9, None)]
    assert (tail.ordinal, tail.revised) == (11, True)
    assert len(watched.log.rows) == 12


def test_steps_that_are_far_apart_do_not_each_write_a_checkpoint() -> None:
    watched = WatchedRun()
    for step in range(30):
        watched.receive(report(step, finished=finished((step, None, 1))), at=60.0 * step)
    ordinals = [update.checkpoint.ordinal for update in watched.log.commits if update.checkpoint is not None]
    assert ordinals == [8, 16, 24]
    watched.scheduler.write_checkpoints()
    assert watched.log.progress(1).checkpoint.ordinal == 30


@pytest.mark.parametrize(
    ("unsaved", "seconds", "is_done", "is_due"),
    [
        (CHECKPOINT_BATCHES - 1, 1.0, False, False),
        (CHECKPOINT_BATCHES, 1.0, False, True),
        (LEAST_CHECKPOINT_BATCHES, 29.0, False, False),
        (LEAST_CHECKPOINT_BATCHES, 30.0, False, True),
        (LEAST_CHECKPOINT_BATCHES - 1, 3600.0, False, False),
        (1, 1.0, True, True),
        (0, 3600.0, True, False),
    ],
)
def test_a_checkpoint_is_due(unsaved: int, seconds: float, is_done: bool, is_due: bool) -> None:
    assert is_checkpoint_due(unsaved, seconds=seconds, is_done=is_done) is is_due


TIMERS: dict[str, tuple[list[tuple[int, float]], list[tuple[float, set[int]]]]] = {
    "each run is due once": (
        [(1, 10.0), (2, 20.0), (3, 10.0)],
        [(9.9, set()), (10.0, {1, 3}), (15.0, set()), (25.0, {2})],
    ),
    "later, it is due only then": (
        [(1, float(at)) for at in range(10, 200, 10)],
        [(189.0, set()), (190.0, {1}), (1000.0, set())],
    ),
    "earlier, it is due then and not at its former time": ([(1, 100.0), (1, 50.0)], [(50.0, {1}), (100.0, set())]),
    "never": ([(1, 10.0), (1, math.inf)], [(1e9, set())]),
}


@pytest.mark.parametrize(("scheduled", "due"), TIMERS.values(), ids=TIMERS)
def test_a_run_is_due_at_the_time_it_was_last_scheduled_for(
    scheduled: list[tuple[int, float]], due: list[tuple[float, set[int]]]
) -> None:
    timers = TimerQueue()
    for run_id, at in scheduled:
        timers.schedule(run_id, at)
    assert [timers.pop_due(now) for now, _ in due] == [run_ids for _, run_ids in due]


def test_a_cancelled_run_is_not_due_until_it_is_scheduled_again() -> None:
    timers = TimerQueue()
    timers.schedule(1, 10.0)
    timers.cancel(1)
    assert timers.pop_due(1e9) == set()
    timers.schedule(1, 20.0)
    assert timers.pop_due(1e9) == {1}


def test_the_queue_does_not_grow_when_a_run_is_rescheduled() -> None:
    timers = TimerQueue()
    for at in range(10_000):
        timers.schedule(at % 10, float(at))
        timers.pop_due(at - 100.0)
    assert len(timers._queue) <= 20
