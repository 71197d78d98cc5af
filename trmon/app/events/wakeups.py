"""Wake-ups: how a commit on the writer's thread reaches the streams that wait on the event loop."""

from __future__ import annotations

import asyncio


class Wakeups:
    """A count of commits that streams wait to see grow; closing it ends them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._grown = asyncio.Event()
        self.closed = False

    @property
    def count(self) -> int:
        """How many wake-ups there were."""
        return self._count

    def wake(self) -> None:
        """Count one; may be called from any thread, and after the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._grow)

    def close(self) -> None:
        """End every stream; to be called on the loop."""
        self.closed = True
        self._grow()

    async def wait(self, seen: int, *, timeout_seconds: float) -> bool:
        """Wait until there were more wake-ups than `seen`; return False if the time ran out first."""
        grown = self._grown
        if self._count > seen or self.closed:
            return True
        try:
            await asyncio.wait_for(grown.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    def _grow(self) -> None:
        self._count += 1
        self._grown.set()
        self._grown = asyncio.Event()
