"""What a restart reads again, so that nothing that waited is forgotten."""

from __future__ import annotations

from tests.domain.trainer import report, stored
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice
from trmon.domain.state.run_update import Frontier
from trmon.runner.pending_state import PendingState
from trmon_client.core import wire

READ = Frontier(report_id=90, notice_id=50)


def heed(waiting: PendingState, message: wire.Message, *, id_: int, attempt_id: int = 1) -> None:
    """Have a notice of an attempt taken up."""
    waiting.heed(StoredNotice(id=id_, run_id=1, attempt_id=attempt_id, received_at=0.0, message=message))


def scalars(step: int) -> wire.Scalars:
    return wire.Scalars(attempt="a", launch="l", sequence=0, step=step, values={"lr": 1.0})


def finish(rank: int = 0) -> wire.Finish:
    return wire.Finish(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def start(rank: int = 0) -> wire.Start:
    return wire.Start(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def test_with_nothing_waiting_a_restart_reads_on_where_it_stood() -> None:
    assert PendingState().settled(READ) == READ
    assert PendingState().recall_from(READ, newest=BatchKey(1, 7, None)) == READ.notice_id


def test_reports_are_read_again_from_the_oldest_of_an_open_batch() -> None:
    waiting = PendingState()
    for id_ in (33, 31):
        waiting.assembly.accept(stored(report(5, rank=id_ % 2, world_size=2), id_=id_))
    assert waiting.has_batches
    assert waiting.settled(READ) == Frontier(report_id=30, notice_id=50)


def test_notices_are_read_again_from_the_oldest_scalars_that_wait_until_their_step_is_folded() -> None:
    waiting = PendingState()
    for id_, step in ((20, 4), (24, 6)):
        heed(waiting, scalars(step), id_=id_)
    assert waiting.recall_from(READ, newest=None) == 19
    waiting.forget_scalars(BatchKey(1, 5, None))
    assert waiting.recall_from(READ, newest=None) == 23


def test_a_rank_that_has_left_is_remembered_while_its_attempt_lives_and_it_is_not_back() -> None:
    waiting = PendingState()
    for rank in (0, 1):
        heed(waiting, finish(rank), id_=10 + rank)
    newest = BatchKey(1, 7, None)
    assert waiting.recall_from(READ, newest=newest) == 9
    heed(waiting, start(0), id_=12)
    assert waiting.recall_from(READ, newest=newest) == 10
    assert waiting.recall_from(READ, newest=BatchKey(2, 0, None)) == READ.notice_id
