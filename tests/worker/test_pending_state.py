"""PendingState: from where a restart reads again."""

from __future__ import annotations

from tests.domain.trainer import report, stored
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon.domain.pipeline.run_update import Frontier
from trmon.worker.recovery import PendingState
from trmon_client.core import wire

READ = Frontier(report_id=90, notice_id=50)


def apply(pending: PendingState, message: wire.Message, *, id_: int, attempt_id: int = 1) -> None:
    """Apply a notice of an attempt."""
    pending.apply_notice(StoredNotice(id=id_, run_id=1, attempt_id=attempt_id, received_at=0.0, message=message))


def scalars(step: int) -> wire.Scalars:
    return wire.Scalars(attempt="a", launch="l", sequence=0, step=step, values={"lr": 1.0})


def finish(rank: int = 0) -> wire.Finish:
    return wire.Finish(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def start(rank: int = 0) -> wire.Start:
    return wire.Start(attempt="a", launch="l", rank=rank, world_size=2, sequence=0)


def test_without_pending_work_a_restart_continues_at_the_frontier() -> None:
    assert PendingState().restart_frontier(READ) == READ
    assert PendingState().reread_notices_after(READ, newest=BatchKey(1, 7, None)) == READ.notice_id


def test_reports_are_read_again_from_the_oldest_of_an_open_batch() -> None:
    pending = PendingState()
    for id_ in (33, 31):
        pending.assembly.add_report(stored(report(5, rank=id_ % 2, world_size=2), id_=id_))
    assert pending.has_batches
    assert pending.restart_frontier(READ) == Frontier(report_id=30, notice_id=50)


def test_notices_are_read_again_from_the_oldest_pending_scalars() -> None:
    pending = PendingState()
    for id_, step in ((20, 4), (24, 6)):
        apply(pending, scalars(step), id_=id_)
    assert pending.reread_notices_after(READ, newest=None) == 19
    pending.forget_scalars(BatchKey(1, 5, None))
    assert pending.reread_notices_after(READ, newest=None) == 23


def test_a_finish_is_read_again_until_its_rank_starts_again_or_its_attempt_ends() -> None:
    pending = PendingState()
    for rank in (0, 1):
        apply(pending, finish(rank), id_=10 + rank)
    newest = BatchKey(1, 7, None)
    assert pending.reread_notices_after(READ, newest=newest) == 9
    apply(pending, start(0), id_=12)
    assert pending.reread_notices_after(READ, newest=newest) == 10
    assert pending.reread_notices_after(READ, newest=BatchKey(2, 0, None)) == READ.notice_id
