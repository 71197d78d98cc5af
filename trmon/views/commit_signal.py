"""Wake-ups: how a commit on the writer's thread reaches the streams that wait on the event loop."""

from __future__ import annotations

import asyncio


class CommitSignal:
    """A count of commits that streams wait to see grow; closing it ends them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._waiting = 0
        self._grown = asyncio.Event()
        self.closed = False

    @property
    def count(self) -> int:
        """How many wake-ups there were."""
        return self._count

    def wake(self) -> None:
        """Count one; may be called from any thread, and after the loop has ended. Where nobody waits, that is all."""
        self._count += 1
        if self._waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def close(self) -> None:
        """End every stream; to be called on the loop."""
        self.closed = True
        self._tell()

    async def wait(self, seen: int, *, timeout_seconds: float) -> bool:
        """Wait until there were more wake-ups than `seen`; return False if the time ran out first."""
        # Before the look at the count: who counts one looks at those who wait after it.
        self._waiting += 1
        try:
            grown = self._grown
            if self._count > seen or self.closed:
                return True
            await asyncio.wait_for(grown.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    def _tell(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
