"""Wakes the streams that wait on the event loop when a commit happens on the writer's thread."""

from __future__ import annotations

import asyncio


class CommitSignal:
    """Counts commits; streams wait for the count to grow, and end when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._n_waiting = 0
        self._changed = asyncio.Event()
        self.closed = False

    @property
    def count(self) -> int:
        """The number of commits so far."""
        return self._count

    def wake(self) -> None:
        """Count a commit; may be called from any thread, and after the loop has ended. Cheap if no stream waits."""
        self._count += 1
        if self._n_waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_waiting)

    def close(self) -> None:
        """End every stream; call it on the loop."""
        self.closed = True
        self._wake_waiting()

    async def wait(self, seen: int, *, timeout_seconds: float) -> bool:
        """Wait until the count is larger than `seen`; return False after the timeout."""
        # Before the count is read: `wake` counts first and then looks for waiting streams.
        self._n_waiting += 1
        try:
            changed = self._changed
            if self._count > seen or self.closed:
                return True
            await asyncio.wait_for(changed.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._n_waiting -= 1
        return True

    def _wake_waiting(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
