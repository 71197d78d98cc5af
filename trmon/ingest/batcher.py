"""Batch the messages of one event-loop turn into one call to the store.

Each call wakes the writer thread, which then competes for the interpreter's lock with the loop that prepares the next
message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from trmon.domain.model.messages import PreparedMessage, WriteResult

WriteFutures = list[Future[WriteResult]]
PendingAppend = tuple[Sequence[PreparedMessage], asyncio.Future[WriteFutures]]
"""The messages of one caller, and the future that resolves once they are queued."""


class ReportSink(Protocol):
    """Stores messages."""

    def append(self, messages: Sequence[PreparedMessage], *, now: float) -> WriteFutures:
        """Queue messages in their order. Errors: Overloaded, with none of them queued."""


class Batcher:
    """Collects messages and queues them at the end of the current turn; for one event loop."""

    def __init__(self, reports: ReportSink) -> None:
        self._reports = reports
        self._pending: list[PendingAppend] = []

    async def append(self, messages: Sequence[PreparedMessage]) -> WriteFutures:
        """Queue messages as `ReportSink.append` does, together with all others of this turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._flush)
        queued: asyncio.Future[WriteFutures] = loop.create_future()
        self._pending.append((messages, queued))
        return await queued

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._queue(pending)

    def _queue(self, pending: Sequence[PendingAppend]) -> None:
        """Queue all messages together; if that is refused, each caller's alone, because some may still fit."""
        try:
            futures = iter(self._reports.append([one for messages, _ in pending for one in messages], now=time.time()))
        except Exception as error:  # noqa: BLE001 - a callback's edge: the caller receives the error
            if len(pending) > 1:
                for one in pending:
                    self._queue([one])
            elif not (queued := pending[0][1]).done():
                queued.set_exception(error)
            return
        for messages, queued in pending:
            own = [next(futures) for _ in messages]
            if not queued.done():
                queued.set_result(own)
