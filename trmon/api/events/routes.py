"""Route of the event stream: Server-Sent Events that a reader can resume after a disconnect."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from trmon.api.events.sse_stream import Follower, stream_events
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.domain.model.errors import InvalidInput, Unauthenticated
from trmon.domain.model.identity import RunKey

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
    """Stream events: closed batches, alerts, changes of state and policy; from now on, or after an event."""
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
