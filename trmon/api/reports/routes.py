"""Ingest routes for trainers: one message of a run, or a bundle."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Sender
from trmon.api.reports.openapi import openapi_body
from trmon.domain.model.access import Scope
from trmon.domain.model.errors import UnsupportedMedia
from trmon.domain.model.identity import RunKey
from trmon_client.core import wire

ONE = "/api/v1/runs/{project}/{run}/reports"
MANY = "/api/v1/reports"

router = APIRouter(tags=["reports"])


@router.post(ONE, openapi_extra=openapi_body("Message", answer="Ack"))
async def send_one(request: Request, project: str, run: str, access: Sender, service: Service) -> Response:
    """Send one message: a report, start, scalars, heartbeat, pause or finish; the response means that it is durable."""
    media_type = _media_type(request)
    key = RunKey.checked(project, run)
    access.require(Scope.INGEST, project=project)
    with service.counters.ingest_seconds.time():
        ack = await service.ingest_service.ingest_message(await _body(request), media_type=media_type, key=key)
    return Response(wire.encode(ack, media_type=media_type), media_type=media_type)


@router.post(MANY, openapi_extra=openapi_body("Bundle", answer="Acks"))
async def send_many(request: Request, access: Sender, service: Service) -> Response:
    """Send messages of any runs; each gets its own acknowledgement, so an invalid one does not affect the others."""
    media_type = _media_type(request)
    with service.counters.ingest_seconds.time():
        acks = await service.ingest_service.ingest_bundle(await _body(request), media_type=media_type, access=access)
    return Response(wire.encode(acks, media_type=media_type), media_type=media_type)


async def _body(request: Request) -> bytes:
    """Return the body, which the gateway passes on in one message."""
    body: bytes = (await request.receive())["body"]
    return body


def _media_type(request: Request) -> str:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (wire.MSGPACK, wire.JSON):
        raise UnsupportedMedia(
            f"content-type must be {wire.MSGPACK} or {wire.JSON}, not {media_type[:64] or 'absent'!r}"
        )
    return media_type
