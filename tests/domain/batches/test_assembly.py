"""Open batches: which close, which wait and how complete they are; and scalars that wait for their step."""

from __future__ import annotations

import pytest

from tests.domain.trainer import finished, report, stored
from trmon.domain.batches.assembly import Assembly, Completeness
from trmon.domain.batches.scalar_steps import PendingScalars, ScalarSteps
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon_client.core import wire

GRACE = 60.0


class Arrivals:
    """An assembly and its reports, with ids in order."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self._id = 0

    def receive(self, step: int, *, at: float = 0.0, attempt_id: int = 1, **fields: object) -> None:
        self._id += 1
        self.assembly.add_report(stored(report(step, **fields), id_=self._id, at=at, attempt_id=attempt_id))

    def closed(self, now: float, *, watching_since: float = 0.0) -> list[tuple[int, Completeness]]:
        """Return the steps that close now, and their completeness."""
        due = self.assembly.close_due(now=now, grace_seconds=GRACE, watching_since=watching_since)
        return [(batch.key.step, batch.completeness) for batch in due]


@pytest.fixture
def arrivals() -> Arrivals:
    return Arrivals()


def test_a_batch_waits_until_its_chunks_are_counted(arrivals: Arrivals) -> None:
    arrivals.receive(0, chunk=0)
    arrivals.receive(0, chunk=1)
    assert arrivals.closed(1.0) == []
    arrivals.receive(1, finished=finished((0, None, 2)))
    assert arrivals.closed(1.0) == [(0, Completeness.COMPLETE)]
    assert arrivals.closed(1.0) == []


def test_a_chunk_count_may_arrive_before_its_chunks(arrivals: Arrivals) -> None:
    arrivals.receive(1, finished=finished((0, None, 2)))
    arrivals.receive(0, chunk=1)
    assert arrivals.closed(1.0) == []
    arrivals.receive(0, chunk=0)
    assert arrivals.closed(1.0) == [(0, Completeness.COMPLETE)]


@pytest.mark.parametrize(
    ("chunks", "counted", "world_size", "completeness"),
    [
        pytest.param([0, 1], None, 1, Completeness.UNCONFIRMED, id="all that are known have arrived"),
        pytest.param([0, 1], 3, 1, Completeness.MISSING_CHUNK, id="fewer than counted"),
        pytest.param([0, 2], None, 1, Completeness.MISSING_CHUNK, id="a gap"),
        pytest.param([0], 1, 2, Completeness.MISSING_RANK, id="a rank that sent nothing"),
    ],
)
def test_the_end_of_the_grace_period_closes_incomplete_batches(
    arrivals: Arrivals, chunks: list[int], counted: int | None, world_size: int, completeness: Completeness
) -> None:
    for chunk in chunks:
        arrivals.receive(0, chunk=chunk, world_size=world_size)
    if counted is not None:
        arrivals.assembly.set_chunk_counts(1, 0, finished((0, None, counted)))
    assert arrivals.closed(59.0) == []
    assert arrivals.closed(60.0) == [(0, completeness)]


def test_the_grace_period_starts_at_the_newest_report(arrivals: Arrivals) -> None:
    arrivals.receive(0, chunk=0, at=0.0)
    arrivals.receive(0, chunk=1, at=50.0)
    assert arrivals.closed(100.0) == []
    assert arrivals.closed(110.0) == [(0, Completeness.UNCONFIRMED)]


def test_the_grace_period_starts_no_earlier_than_the_service(arrivals: Arrivals) -> None:
    arrivals.receive(0, at=0.0)
    assert arrivals.closed(5000.0, watching_since=4990.0) == []


def test_an_open_batch_delays_only_later_batches_of_its_attempt(arrivals: Arrivals) -> None:
    arrivals.receive(0, world_size=2, at=0.0)
    arrivals.receive(1, finished=finished((0, None, 1)), at=30.0)
    arrivals.receive(2, finished=finished((1, None, 1)), at=40.0)
    arrivals.receive(0, attempt_id=2, at=30.0)
    arrivals.receive(1, attempt_id=2, finished=finished((0, None, 1)), at=30.0)
    due = arrivals.assembly.close_due(now=45.0, grace_seconds=GRACE, watching_since=0.0)
    assert [batch.key for batch in due] == [BatchKey(2, 0, None)]
    assert arrivals.closed(61.0) == [(0, Completeness.MISSING_RANK), (1, Completeness.COMPLETE)]


def test_updates_close_in_order_after_the_rollout_batch(arrivals: Arrivals) -> None:
    arrivals.receive(0, update=1)
    arrivals.receive(0, update=0)
    arrivals.receive(0)
    arrivals.assembly.set_chunk_counts(1, 0, finished((0, None, 1), (0, 0, 1), (0, 1, 1)))
    due = arrivals.assembly.close_due(now=0.0, grace_seconds=GRACE, watching_since=0.0)
    assert [batch.key.update for batch in due] == [None, 0, 1]


def test_batches_do_not_wait_for_a_rank_that_ended_until_it_restarts(arrivals: Arrivals) -> None:
    end = wire.Finish(attempt="a", launch="launch-1", sequence=1, world_size=2, finished=finished((0, None, 1)))
    arrivals.receive(0, world_size=2)
    arrivals.assembly.rank_ended(1, end)
    assert arrivals.closed(1.0) == []
    arrivals.assembly.rank_ended(1, wire.Finish(attempt="a", launch="launch-1", sequence=1, rank=1, world_size=2))
    assert arrivals.closed(1.0) == [(0, Completeness.MISSING_RANK)]
    arrivals.receive(1, launch="launch-2")
    assert arrivals.closed(1.0) == []


def test_batches_wait_for_a_rank_again_after_its_start(arrivals: Arrivals) -> None:
    arrivals.assembly.rank_ended(1, wire.Finish(attempt="a", launch="launch-1", sequence=1))
    arrivals.assembly.rank_started(1, 0)
    arrivals.receive(0)
    assert arrivals.closed(1.0) == []


def test_reports_of_a_closed_batch_are_ordered_by_rank_and_chunk(arrivals: Arrivals) -> None:
    for rank, chunk in ((1, 1), (0, 1), (1, 0), (0, 0)):
        arrivals.receive(0, rank=rank, chunk=chunk, world_size=2)
    (batch,) = arrivals.assembly.close_due(now=GRACE, grace_seconds=GRACE, watching_since=0.0)
    assert [(r.key.rank, r.key.chunk) for r in batch.reports] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_oldest_report_and_the_end_of_the_grace_period_of_open_batches(arrivals: Arrivals) -> None:
    assert arrivals.assembly.oldest_report_id() is None
    assert arrivals.assembly.grace_ends(grace_seconds=GRACE, watching_since=0.0) is None
    arrivals.receive(0, at=5.0)
    arrivals.receive(1, at=9.0)
    assert arrivals.assembly.oldest_report_id() == 1
    assert arrivals.assembly.grace_ends(grace_seconds=GRACE, watching_since=0.0) == 65.0


@pytest.mark.parametrize(
    ("chunks", "completeness"),
    [
        pytest.param([0, 1, 2], Completeness.COMPLETE, id="as many as announced"),
        pytest.param([0, 1], Completeness.MISSING_CHUNK, id="fewer: the trainer crashed"),
    ],
)
def test_an_announced_number_of_chunks_decides_completeness(
    arrivals: Arrivals, chunks: list[int], completeness: Completeness
) -> None:
    for chunk in chunks:
        arrivals.receive(0, chunk=chunk, chunks=3)
    arrivals.assembly.rank_ended(1, wire.Finish(attempt="a", launch="launch-1", sequence=1, outcome="crashed"))
    assert arrivals.closed(1.0) == [(0, completeness)]


def test_a_count_of_what_was_sent_precedes_the_announced_one(arrivals: Arrivals) -> None:
    arrivals.receive(0, chunks=3)
    arrivals.receive(1, finished=finished((0, None, 1)))
    assert arrivals.closed(1.0) == [(0, Completeness.COMPLETE)]


@pytest.mark.parametrize(("count", "is_complete"), [(2, True), (3, False)])
def test_a_count_that_comes_after_the_grace_period_confirms_the_closed_batch(
    arrivals: Arrivals, count: int, is_complete: bool
) -> None:
    for chunk in (0, 1):
        arrivals.receive(0, chunk=chunk)
    assert arrivals.closed(GRACE) == [(0, Completeness.UNCONFIRMED)]
    assert arrivals.assembly.take_confirmed() == {}
    arrivals.receive(1, finished=finished((0, None, count)), at=GRACE)
    assert arrivals.assembly.take_confirmed() == {BatchKey(1, 0, None): is_complete}
    assert arrivals.assembly.take_confirmed() == {}


def shelf_of(*messages: tuple[int, int, int, dict[str, float]], sent_at: float = 0.0) -> PendingScalars:
    """Return a shelf with scalars messages of (attempt, step, rank, values), ids from 1, that arrived at 50."""
    shelf = PendingScalars()
    for id_, (attempt_id, step, rank, values) in enumerate(messages, start=1):
        message = wire.Scalars(
            attempt="a",
            launch="l",
            rank=rank,
            world_size=8,
            sequence=id_,
            sent_at=sent_at,
            step=step,
            values=dict(values),
        )
        notice = StoredNotice(id=id_, run_id=1, attempt_id=attempt_id, received_at=50.0, message=message)
        shelf.add(notice, step=step)
    return shelf


def test_lower_ranks_win_and_then_newer_messages() -> None:
    shelf = shelf_of((1, 5, 0, {"lr": 1.0}), (1, 5, 3, {"lr": 9.0, "memory": 4.0}), (1, 5, 0, {"lr": 2.0}))
    assert shelf.of(1, 5) == {"lr": 2.0, "memory": 4.0}
    assert shelf.of(1, 6) == {}


def test_steps_before_the_newest_are_forgotten_but_not_of_attempts_with_open_batches() -> None:
    shelf = shelf_of(*((attempt, step, 0, {"x": 1.0}) for attempt in (1, 2, 3) for step in (4, 5)))
    shelf.forget_before(BatchKey(3, 5, None), keeping={2})
    kept = [(attempt, step) for attempt in (1, 2, 3) for step in (4, 5) if shelf.of(attempt, step)]
    assert kept == [(2, 4), (2, 5), (3, 5)]
    assert shelf.oldest_id() == 3


@pytest.mark.parametrize(("sent_at", "made_at"), [(40.0, 40.0), (0.0, None)])
def test_a_step_was_made_when_its_trainer_says_and_an_arrival_tells_nothing(
    sent_at: float, made_at: float | None
) -> None:
    steps = ScalarSteps(
        shelf_of((1, 5, 0, {"lr": 1.0}), sent_at=sent_at),
        reporting=(),
        is_rank_ended=lambda *_: False,
        folded=None,
        has_ended=True,
        grace_seconds=60.0,
        watching_since=0.0,
    )
    assert [(step.made_at, step.newest_at) for step in steps.due(60.0)] == [(made_at, 50.0)]
