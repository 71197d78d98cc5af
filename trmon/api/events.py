"""Server-Sent Events of runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.domain.access import Access
from trmon.domain.errors import InvalidInput, Unauthenticated
from trmon.domain.identity import RunKey
from trmon.fleet.changes import CommitSignal
from trmon.fleet.judging import JudgingDelay, JudgingWatch
from trmon.store.repositories.events import Events, StoredEvent

JUDGING_SECONDS = 5.0
"""How often a stream says how far the judging is behind, also in place of a keep-alive."""
PAUSE_SECONDS = 0.2
"""Shortest time between two reads of a stream: one read covers several commits."""
MAX_EVENTS_PER_READ = 200
RETRY_MILLISECONDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A reader of the event stream, and which events it may see until its token is revoked."""

    events: Events
    commit_signal: CommitSignal
    access: Access
    is_authorized: Callable[[], Awaitable[bool]]
    judging: JudgingWatch
    run: RunKey | None = None

    def read(self, after: int) -> tuple[list[StoredEvent], int]:
        """Return the next events, and the id to continue after; blocks."""
        return self.events.read_after(after, access=self.access, run=self.run, limit=MAX_EVENTS_PER_READ)

    def start(self, after: int | None) -> int:
        """Return the id to start after: this one, or the newest event's without one; blocks."""
        newest = self.events.last_id()
        # An id beyond the newest event is from another database: waiting for later ones would never end.
        return newest if after is None else min(after, newest)


async def stream_events(follower: Follower, *, position: int) -> AsyncIterator[bytes]:
    """Yield events after an id and, every 5 s, how far the judging is behind."""
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    said_at = -math.inf
    while not follower.commit_signal.closed and await follower.is_authorized():
        seen_commits, read_at = follower.commit_signal.count, time.monotonic()
        if read_at - said_at >= JUDGING_SECONDS:
            said_at = read_at
            yield judging_frame(follower.judging.delay())
        events, position = await asyncio.to_thread(follower.read, position)
        for stored in events:
            yield sse_frame(stored)
        if len(events) == MAX_EVENTS_PER_READ:
            continue
        left = JUDGING_SECONDS - (time.monotonic() - said_at)
        await follower.commit_signal.wait(seen_commits, timeout_seconds=max(0.0, left))
        await asyncio.sleep(pause_seconds(since_read_seconds=time.monotonic() - read_at))


def pause_seconds(*, since_read_seconds: float) -> float:
    """Return how long a stream pauses before it reads again: 0 if the last read is long ago."""
    return max(0.0, PAUSE_SECONDS - since_read_seconds)


def sse_frame(stored: StoredEvent) -> bytes:
    """Return an event in the SSE format."""
    origin = {"project": stored.key.project, "run": stored.key.run, "at": stored.event.at}
    data = msgspec.json.encode({**origin, **stored.event.data})
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (stored.id, stored.event.kind.encode(), data)


def judging_frame(delay: JudgingDelay) -> bytes:
    """Return an event without an id, which no stored event has: a reader resumes after the one before."""
    return b"event: judging\ndata: %b\n\n" % msgspec.json.encode(delay)


router = APIRouter(prefix="/api/v1/events", tags=["events"])

EVENT_STREAM = "text/event-stream"
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that keep proxies and caches from delaying the stream."""


@router.get("", response_class=StreamingResponse, responses={200: {"content": {EVENT_STREAM: {}}}})
async def follow_events(
    request: Request,
    access: Reader,
    service: Service,
    run: Annotated[str | None, Query(max_length=257, description="Only this run, as project/run.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0, description="Resume after this event.")] = None,
) -> StreamingResponse:
    """Stream events: closed batches, alerts, changes of state and policy; from now on, or after an event.

    Every 5 s an event `judging` says how far the service itself is behind: `beat_age_seconds` since a worker made
    progress, null without one, and `oldest_unprocessed_seconds`, the age of the oldest report not processed.
    """
    key = None if run is None else _run_key(run)
    if key is not None:
        await run_in_threadpool(service.store.runs.get, key, access=access)

    async def is_authorized() -> bool:
        try:
            return await service.authenticator.access(request.headers, now=time.time()) == access
        except Unauthenticated:
            return False

    follower = Follower(
        events=service.store.events,
        commit_signal=service.commit_signal,
        access=access,
        is_authorized=is_authorized,
        judging=service.judging,
        run=key,
    )
    # Before the headers: who has them may rely on every later event.
    position = await run_in_threadpool(follower.start, last_event_id)
    stream = stream_events(follower, position=position)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=UNBUFFERED)


def _run_key(run: str) -> RunKey:
    project, slash, name = run.partition("/")
    if not slash:
        raise InvalidInput("run", "must be project/run")
    return RunKey.checked(project, name)
