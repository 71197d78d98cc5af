"""Server-Sent Events of runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.domain.errors import Unauthenticated
from trmon.domain.identity import RunKey
from trmon.store.repositories.events import StoredEvent

JUDGING_SECONDS = 5.0
"""How often a stream says how far the judging is behind, also in place of a keep-alive."""
PAUSE_SECONDS = 0.2
"""Shortest time between two reads of a stream: one read covers several commits."""
MAX_EVENTS_PER_READ = 200
RETRY_MILLISECONDS = 2000


async def stream_events(
    service: Components,
    read: Callable[[int], tuple[list[StoredEvent], int]],
    *,
    position: int,
    is_authorized: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield events after an id and, every 5 s, how far the judging is behind.

    Args: read: returns the events after an id, and the id to continue after; blocks.
    """
    commit_signal, said_at = service.commit_signal, -math.inf
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    while not commit_signal.closed and await is_authorized():
        seen_commits, read_at = commit_signal.count, time.monotonic()
        if read_at - said_at >= JUDGING_SECONDS:
            said_at = read_at
            # Without an id, which every stored event has: a reader resumes after the one before.
            yield b"event: judging\ndata: %b\n\n" % msgspec.json.encode(service.judging.delay())
        events, position = await asyncio.to_thread(read, position)
        for stored in events:
            yield sse_frame(stored)
        if len(events) == MAX_EVENTS_PER_READ:
            continue
        left = JUDGING_SECONDS - (time.monotonic() - said_at)
        await commit_signal.wait(seen_commits, timeout_seconds=max(0.0, left))
        await asyncio.sleep(pause_seconds(since_read_seconds=time.monotonic() - read_at))


def pause_seconds(*, since_read_seconds: float) -> float:
    """Return how long a stream pauses before it reads again: 0 if the last read is long ago."""
    return max(0.0, PAUSE_SECONDS - since_read_seconds)


def sse_frame(stored: StoredEvent) -> bytes:
    """Return an event in the SSE format."""
    origin = {"project": stored.key.project, "run": stored.key.run, "at": stored.event.at}
    data = msgspec.json.encode({**origin, **stored.event.data})
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (stored.id, stored.event.kind.encode(), data)


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
    key = None if run is None else RunKey.parse(run, field="run")
    if key is not None:
        await run_in_threadpool(service.store.runs.get, key, access=access)

    async def is_authorized() -> bool:
        try:
            return await service.authenticator.access(request.headers, now=time.time()) == access
        except Unauthenticated:
            return False

    events = service.store.events
    # Before the headers: who has them may rely on every later event.
    newest = await run_in_threadpool(events.last_id)
    # An id beyond the newest event is from another database: waiting for later ones would never end.
    position = newest if last_event_id is None else min(last_event_id, newest)
    read = partial(events.read_after, access=access, run=key, limit=MAX_EVENTS_PER_READ)
    stream = stream_events(service, read, position=position, is_authorized=is_authorized)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=UNBUFFERED)
