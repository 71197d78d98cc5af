"""Readiness: whether the process can do its work, asked without waiting for a database that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from trmon.domain.model.errors import NotReady

PATIENCE_SECONDS = 2.0


class Readiness:
    """Runs a check on a thread of its own, one at a time: whoever asks meanwhile waits for the same answer."""

    def __init__(self, check: Callable[[], None], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._check = check
        self._patience_seconds = patience_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trmon-readiness")
        self._running: Future[None] | None = None

    async def check(self) -> None:
        """Raise NotReady unless all is well. Errors: NotReady, also when there is no answer after two seconds."""
        if self._running is None or self._running.done():
            self._running = self._thread.submit(self._check)
        answer = asyncio.shield(asyncio.wrap_future(self._running))
        try:
            await asyncio.wait_for(answer, self._patience_seconds)
        except TimeoutError as error:
            raise NotReady(f"the database does not answer within {self._patience_seconds:g} s") from error

    def close(self) -> None:
        """Let go of the thread; an answer that is under way is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
