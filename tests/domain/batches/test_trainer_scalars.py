"""Scalars that wait for their step."""

from __future__ import annotations

import pytest

from trmon.domain.batches.scalar_steps import PendingScalars, ScalarSteps
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon_client.core import wire


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
