"""Scalars that wait for their step."""

from __future__ import annotations

from trmon.domain.batches.scalar_steps import PendingScalars
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon_client.core import wire


def shelf_of(*messages: tuple[int, int, int, dict[str, float]]) -> PendingScalars:
    """Return a shelf with scalars messages of (attempt, step, rank, values), ids from 1."""
    shelf = PendingScalars()
    for id_, (attempt_id, step, rank, values) in enumerate(messages, start=1):
        message = wire.Scalars(
            attempt="a", launch="l", rank=rank, world_size=8, sequence=id_, step=step, values=dict(values)
        )
        notice = StoredNotice(id=id_, run_id=1, attempt_id=attempt_id, received_at=0.0, message=message)
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
