"""The messages of one event-loop turn are queued together; losses that clients report are counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from tests.fixtures.loops import run
from tests.fixtures.messages import ORIGIN
from tests.store.builders import report_intake
from trmon.domain.errors import Overloaded
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage, WriteResult
from trmon.ingest.service import Batcher, ClientLosses, WriteFutures
from trmon_client.core import wire

FIRST, SECOND, THIRD = (report_intake(step=step) for step in (1, 2, 3))


@dataclass
class Queue:
    """Records each append and the futures it returned; refuses with an error, or above its capacity."""

    capacity: int = 100
    queued: list[list[PreparedMessage]] = field(default_factory=list)
    returned: WriteFutures = field(default_factory=list)
    error: Exception | None = None

    def append(self, messages: Sequence[PreparedMessage], *, now: float) -> WriteFutures:
        if self.error is not None:
            raise self.error
        if len(messages) > self.capacity:
            raise Overloaded("the queue is full", retry_after_seconds=1.0)
        self.queued.append(list(messages))
        futures: WriteFutures = [Future[WriteResult]() for _ in messages]
        self.returned += futures
        return futures


def test_messages_of_one_turn_are_queued_together_in_order() -> None:
    async def send() -> None:
        queue = Queue()
        batcher = Batcher(queue)
        found = await asyncio.gather(batcher.append([FIRST, SECOND]), batcher.append([THIRD]))
        assert queue.queued == [[FIRST, SECOND, THIRD]]
        assert found == [queue.returned[:2], queue.returned[2:]]
        await batcher.append([FIRST])
        assert queue.queued[1:] == [[FIRST]]

    run(send())


def test_every_caller_gets_the_error_and_the_next_turn_starts_afresh() -> None:
    async def send() -> None:
        queue = Queue(error=Overloaded("the queue is full", retry_after_seconds=1.0))
        batcher = Batcher(queue)
        found = await asyncio.gather(batcher.append([FIRST]), batcher.append([SECOND]), return_exceptions=True)
        assert found == [queue.error, queue.error]
        queue.error = None
        await batcher.append([THIRD])
        assert queue.queued == [[THIRD]]

    run(send())


def test_a_caller_with_too_many_messages_is_refused_alone() -> None:
    async def send() -> None:
        queue = Queue(capacity=1)
        batcher = Batcher(queue)
        sent = (batcher.append([FIRST, SECOND]), batcher.append([THIRD]))
        refused, queued = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(refused, Overloaded)
        assert queued == queue.returned
        assert queue.queued == [[THIRD]]

    run(send())


@pytest.mark.parametrize("error", [None, Overloaded("the queue is full", retry_after_seconds=1.0)])
def test_a_cancelled_caller_does_not_affect_the_others(error: Exception | None) -> None:
    async def send() -> None:
        queue = Queue(error=error)
        batcher = Batcher(queue)
        cancelled = asyncio.ensure_future(batcher.append([FIRST]))
        other = asyncio.ensure_future(batcher.append([SECOND]))
        await asyncio.sleep(0)
        cancelled.cancel()
        (found,) = await asyncio.gather(other, return_exceptions=True)
        assert found == (queue.returned[1:] if error is None else error)

    run(send())


KEY = RunKey("math", "grpo")


def beat(rank: int = 0, **dropped: int) -> wire.Heartbeat:
    return wire.Heartbeat(**ORIGIN, rank=rank, world_size=8, losses=wire.Losses(dropped))


@pytest.mark.parametrize(
    ("sent", "increases"),
    [
        ([(0, 2), (0, 2), (0, 5)], [2, 0, 3]),
        ([(0, 5), (0, 2), (0, 6)], [5, 0, 1]),
        ([(0, 2), (1, 2), (0, 2)], [2, 2, 0]),
    ],
    ids=["increases are added up", "a late message subtracts nothing", "ranks are counted separately"],
)
def test_the_increase_since_a_senders_last_message_counts(sent: list[tuple[int, int]], increases: list[int]) -> None:
    losses = ClientLosses()
    assert [losses.increases(KEY, beat(rank, queue_full=n)).get("queue_full", 0) for rank, n in sent] == increases


def test_reasons_that_no_client_of_ours_names_count_as_other() -> None:
    losses = ClientLosses()
    increases = losses.increases(KEY, beat(**{f"reason_{i}": 1 for i in range(10)}, queue_full=3))
    assert increases == {"other": 10, "queue_full": 3}
    assert losses.increases(KEY, beat(mine=11)) == {"other": 1}
