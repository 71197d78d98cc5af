"""Checks readiness without waiting for a database that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from trmon.domain.model.errors import NotReady

TIMEOUT_SECONDS = 2.0


class Readiness:
    """Runs a check on its own thread, one at a time; concurrent callers share its result."""

    def __init__(self, check: Callable[[], None], *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._check = check
        self._timeout_seconds = timeout_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trmon-readiness")
        self._running: Future[None] | None = None

    async def check(self) -> None:
        """Raise NotReady if the check fails or does not finish within the timeout."""
        if self._running is None or self._running.done():
            self._running = self._thread.submit(self._check)
        answer = asyncio.shield(asyncio.wrap_future(self._running))
        try:
            await asyncio.wait_for(answer, self._timeout_seconds)
        except TimeoutError as error:
            raise NotReady(f"the database does not answer within {self._timeout_seconds:g} s") from error

    def close(self) -> None:
        """Stop the thread without waiting for a check in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)
