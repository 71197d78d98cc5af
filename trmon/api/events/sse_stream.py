"""A stream of events: each reader keeps its own place and reads on when there is more, so a slow one holds nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from trmon.domain.model.access import Access
from trmon.domain.model.identity import RunKey
from trmon.store.repositories.events import StoredEvent
from trmon.views.commit_signal import CommitSignal

HEARTBEAT_SECONDS = 15.0
PAUSE_SECONDS = 0.2
"""Shortest time between two reads of one stream: commits in between are read together."""
MAX_AT_ONCE = 200
RETRY_MILLISECONDS = 2000


class EventFeed(Protocol):
    """What a stream asks of the store."""

    def read_after(self, event_id: int, *, access: Access, run: RunKey | None, limit: int) -> tuple[list[StoredEvent], int]:
        """Return the events with a larger id that the caller may see, oldest first, and the place to look on from."""

    def last_id(self) -> int:
        """Return the id of the newest event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Who follows which events, for as long as the token that was shown is one."""

    events: EventFeed
    commit_signal: CommitSignal
    access: Access
    is_known: Callable[[], Awaitable[bool]]
    run: RunKey | None = None

    def read(self, after: int) -> tuple[list[StoredEvent], int]:
        """Return the next events, and after which to read on; blocks."""
        return self.events.read_after(after, access=self.access, run=self.run, limit=MAX_AT_ONCE)


async def stream_events(follower: Follower, *, after: int | None) -> AsyncIterator[bytes]:
    """Yield events as they come, after one of them or from now on, and comments while there are none."""
    newest = await asyncio.to_thread(follower.events.last_id)
    # A place beyond the newest event is of another database: nothing would ever come after it.
    place = newest if after is None else min(after, newest)
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    while not follower.commit_signal.closed and await follower.is_known():
        seen, read_at = follower.commit_signal.count, time.monotonic()
        found, place = await asyncio.to_thread(follower.read, place)
        for stored in found:
            yield sse_frame(stored)
        if len(found) == MAX_AT_ONCE:
            continue
        if not await follower.commit_signal.wait(seen, timeout_seconds=HEARTBEAT_SECONDS):
            yield b": alive\n\n"
        await asyncio.sleep(pause_seconds(since_read_seconds=time.monotonic() - read_at))


def pause_seconds(*, since_read_seconds: float) -> float:
    """Return how long a stream still waits before it reads again: not at all where nothing came for a while."""
    return max(0.0, PAUSE_SECONDS - since_read_seconds)


def sse_frame(stored: StoredEvent) -> bytes:
    """Return an event as it goes over the line."""
    place = {"project": stored.key.project, "run": stored.key.run, "at": stored.event.at}
    data = msgspec.json.encode({**place, **stored.event.data})
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (stored.id, stored.event.kind.encode(), data)
