"""Losses that clients report: increases are counted by sender, under a bounded number of reasons."""

from __future__ import annotations

from tests.fixtures.messages import ORIGIN
from trmon.domain.identity import RunKey
from trmon.ingest.service import MAX_REASONS, ClientLosses
from trmon_client.core import wire

KEY = RunKey("math", "grpo")


def beat(rank: int = 0, **dropped: int) -> wire.Heartbeat:
    return wire.Heartbeat(**ORIGIN, rank=rank, world_size=8, losses=wire.Losses(dropped))


def test_increases_of_counters_are_added_up() -> None:
    losses = ClientLosses()
    increases = [dict(losses.increases(KEY, beat(queue_full=n))) for n in (2, 2, 5)]
    assert increases == [{"queue_full": 2}, {}, {"queue_full": 3}]


def test_a_late_message_subtracts_nothing() -> None:
    losses = ClientLosses()
    assert [sum(losses.increases(KEY, beat(queue_full=n)).values()) for n in (5, 2, 6)] == [5, 0, 1]


def test_senders_are_counted_separately() -> None:
    losses = ClientLosses()
    assert [sum(losses.increases(KEY, beat(rank, queue_full=2)).values()) for rank in (0, 1, 0)] == [2, 2, 0]


def test_reasons_above_the_limit_count_as_other() -> None:
    losses = ClientLosses()
    increases = losses.increases(KEY, beat(**{f"reason_{i}": 1 for i in range(MAX_REASONS + 10)}))
    assert len(increases) == MAX_REASONS + 1
    assert increases["other"] == 10


def test_messages_without_losses_count_nothing() -> None:
    assert not ClientLosses().increases(KEY, wire.Pause(**ORIGIN, sequence=0))


def test_memory_is_bounded_in_the_number_of_reasons() -> None:
    losses = ClientLosses()
    for i in range(5 * MAX_REASONS):
        losses.increases(KEY, beat(**{f"reason_{i}": 1}))
    assert all(len(kept) <= MAX_REASONS + 1 for kept in losses._latest.values())
