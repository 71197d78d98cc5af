"""What comes in one turn of the loop is queued together, and each caller gets its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from tests.fixtures.loops import run
from tests.store.builders import report_intake
from trmon.domain.model.errors import Overloaded
from trmon.domain.model.messages import PreparedMessage, WriteResult
from trmon.ingest.batcher import Batcher, Receipts

FIRST, SECOND, THIRD = (report_intake(step=step) for step in (1, 2, 3))


@dataclass
class Queue:
    """Remembers what was queued together, and the futures given for it; refuses with an error, or for want of room."""

    room: int = 100
    queued: list[list[PreparedMessage]] = field(default_factory=list)
    given: Receipts = field(default_factory=list)
    error: Exception | None = None

    def append(self, intakes: Sequence[PreparedMessage], *, now: float) -> Receipts:
        """Queue."""
        if self.error is not None:
            raise self.error
        if len(intakes) > self.room:
            raise Overloaded("much waits", retry_after_seconds=1.0)
        self.queued.append(list(intakes))
        made: Receipts = [Future[WriteResult]() for _ in intakes]
        self.given += made
        return made


def test_what_comes_in_one_turn_is_queued_together_in_its_order() -> None:
    async def send() -> None:
        queue = Queue()
        gathering = Batcher(queue)
        found = await asyncio.gather(gathering.append([FIRST, SECOND]), gathering.append([THIRD]))
        assert queue.queued == [[FIRST, SECOND, THIRD]]
        assert found == [queue.given[:2], queue.given[2:]]
        await gathering.append([FIRST])
        assert queue.queued[1:] == [[FIRST]]

    run(send())


def test_everybody_hears_that_nothing_was_queued_and_the_next_turn_begins_anew() -> None:
    async def send() -> None:
        queue = Queue(error=Overloaded("much waits", retry_after_seconds=1.0))
        gathering = Batcher(queue)
        found = await asyncio.gather(gathering.append([FIRST]), gathering.append([SECOND]), return_exceptions=True)
        assert found == [queue.error, queue.error]
        queue.error = None
        await gathering.append([THIRD])
        assert queue.queued == [[THIRD]]

    run(send())


def test_who_brings_too_much_has_nobody_else_refused() -> None:
    async def send() -> None:
        queue = Queue(room=1)
        gathering = Batcher(queue)
        sent = (gathering.append([FIRST, SECOND]), gathering.append([THIRD]))
        refused, queued = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(refused, Overloaded)
        assert queued == queue.given
        assert queue.queued == [[THIRD]]

    run(send())


@pytest.mark.parametrize("error", [None, Overloaded("much waits", retry_after_seconds=1.0)])
def test_who_goes_away_takes_nobody_along(error: Exception | None) -> None:
    async def send() -> None:
        queue = Queue(error=error)
        gathering = Batcher(queue)
        gone = asyncio.ensure_future(gathering.append([FIRST]))
        stays = asyncio.ensure_future(gathering.append([SECOND]))
        await asyncio.sleep(0)
        gone.cancel()
        (found,) = await asyncio.gather(stays, return_exceptions=True)
        assert found == (queue.given[1:] if error is None else error)

    run(send())
