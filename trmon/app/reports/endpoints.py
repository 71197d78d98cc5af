"""Where trainers send: one message of a run, or a bundle of many."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from trmon.app.http.callers import Sender, sender
from trmon.app.parts import Service, parts_of
from trmon.app.reports.openapi import body_of
from trmon.domain.access import Scope
from trmon.domain.errors import UnsupportedMedia
from trmon.domain.identity import RunKey
from trmon_client.core import wire


class Direct(APIRoute):
    """Calls its endpoint without solving its dependencies, which costs more than all that the endpoint does itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""

        async def answer(request: Request) -> Response:
            access, service = await sender(request), await parts_of(request)
            response: Response = await self.endpoint(request, **request.path_params, access=access, service=service)
            return response

        return answer


router = APIRouter(tags=["reports"], route_class=Direct)


@router.post("/api/v1/runs/{project}/{run}/reports", openapi_extra=body_of("Message", answer="Ack"))
async def send_one(request: Request, project: str, run: str, access: Sender, service: Service) -> Response:
    """Send one message: a report, start, scalars, heartbeat, pause or finish; answered when it is on the disk."""
    media_type = _media_type(request)
    key = RunKey.checked(project, run)
    access.require(Scope.INGEST, project=project)
    with service.counters.ingest_seconds.time():
        ack = await service.reception.one(await request.body(), media_type=media_type, key=key)
    return Response(wire.encode(ack, media_type=media_type), media_type=media_type)


@router.post("/api/v1/reports", openapi_extra=body_of("Bundle", answer="Acks"))
async def send_many(request: Request, access: Sender, service: Service) -> Response:
    """Send many messages of any runs; each has its own answer, so that a bad one spoils no other."""
    media_type = _media_type(request)
    with service.counters.ingest_seconds.time():
        acks = await service.reception.many(await request.body(), media_type=media_type, access=access)
    return Response(wire.encode(acks, media_type=media_type), media_type=media_type)


def _media_type(request: Request) -> str:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (wire.MSGPACK, wire.JSON):
        raise UnsupportedMedia(
            f"content-type must be {wire.MSGPACK} or {wire.JSON}, and is {media_type[:64] or 'not given'!r}"
        )
    return media_type
