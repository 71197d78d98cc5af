"""Gathering: what comes in one turn of the event loop is handed to the writer together.

Each hand-over wakes the writer, which then wants the interpreter's lock of the loop that is preparing the next report.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from trmon.domain.model.messages import PreparedMessage, WriteResult

Receipts = list[Future[WriteResult]]
Waiting = tuple[Sequence[PreparedMessage], asyncio.Future[Receipts]]
"""What somebody wants to be queued, and what ends when it is."""


class ReportSink(Protocol):
    """Where messages are kept."""

    def append(self, intakes: Sequence[PreparedMessage], *, now: float) -> Receipts:
        """Queue messages, in their order. Errors: Overloaded, with none of them queued."""


class Batcher:
    """Hands messages over at the end of the turn in which they came; for one event loop."""

    def __init__(self, reports: ReportSink) -> None:
        self._reports = reports
        self._waiting: list[Waiting] = []

    async def append(self, intakes: Sequence[PreparedMessage]) -> Receipts:
        """Queue messages, in their order, as of `Reports.append`, with all that comes in this turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._end_turn)
        queued: asyncio.Future[Receipts] = loop.create_future()
        self._waiting.append((intakes, queued))
        return await queued

    def _end_turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._hand_over(waiting)

    def _hand_over(self, waiting: Sequence[Waiting]) -> None:
        """Queue what some wait for: together or, where that is refused, one by one, as there may be room for some."""
        try:
            futures = iter(self._reports.append([one for intakes, _ in waiting for one in intakes], now=time.time()))
        except Exception as error:  # noqa: BLE001 - the edge of a callback: whoever waits gets the error
            if len(waiting) > 1:
                for one in waiting:
                    self._hand_over([one])
            elif not (queued := waiting[0][1]).done():
                queued.set_exception(error)
            return
        for intakes, queued in waiting:
            own = [next(futures) for _ in intakes]
            if not queued.done():
                queued.set_result(own)
