"""What clients lost: counted as it grows, by sender, under a bounded number of reasons."""

from __future__ import annotations

from tests.fixtures.messages import ORIGIN
from trmon.domain.model.identity import RunKey
from trmon.ingest.client_losses import MAX_REASONS, ClientLosses
from trmon_client.core import wire

KEY = RunKey("math", "grpo")


def beat(rank: int = 0, **dropped: int) -> wire.Heartbeat:
    return wire.Heartbeat(**ORIGIN, rank=rank, world_size=8, losses=wire.Losses(dropped))


def test_counters_are_added_up_as_they_grow() -> None:
    losses = ClientLosses()
    grown = [dict(losses.grown(KEY, beat(queue_full=n))) for n in (2, 2, 5)]
    assert grown == [{"queue_full": 2}, {}, {"queue_full": 3}]


def test_a_message_that_comes_late_takes_nothing_back() -> None:
    losses = ClientLosses()
    assert [sum(losses.grown(KEY, beat(queue_full=n)).values()) for n in (5, 2, 6)] == [5, 0, 1]


def test_senders_are_counted_apart() -> None:
    losses = ClientLosses()
    assert [sum(losses.grown(KEY, beat(rank, queue_full=2)).values()) for rank in (0, 1, 0)] == [2, 2, 0]


def test_reasons_without_end_become_other() -> None:
    losses = ClientLosses()
    grown = losses.grown(KEY, beat(**{f"reason_{i}": 1 for i in range(MAX_REASONS + 10)}))
    assert len(grown) == MAX_REASONS + 1
    assert grown["other"] == 10


def test_messages_without_losses_count_nothing() -> None:
    assert not ClientLosses().grown(KEY, wire.Pause(**ORIGIN, sequence=0))


def test_memory_does_not_grow_with_the_reasons() -> None:
    losses = ClientLosses()
    for i in range(5 * MAX_REASONS):
        losses.grown(KEY, beat(**{f"reason_{i}": 1}))
    assert all(len(kept) <= MAX_REASONS + 1 for kept in losses._newest.values())
