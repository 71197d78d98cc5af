"""Ingest routes for trainers: one message of a run, or a bundle; OpenAPI describes both by the wire format."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from trmon.api.http.auth import require_sender
from trmon.api.http.components import components_of
from trmon.domain.access import Scope
from trmon.domain.errors import UnsupportedMedia
from trmon.domain.identity import RunKey
from trmon.ingest.body_cost import Body, BodyCost
from trmon_client.core import wire

_REF = "#/components/schemas/{name}"
_NAMED: dict[str, Any] = {"Message": wire.Message, "Bundle": wire.Bundle, "Ack": wire.Ack, "Acks": wire.Acks}


def openapi_body(name: str, *, answer: str) -> dict[str, Any]:
    """Return a route's OpenAPI entry for its request and response bodies, in both media types."""
    return {
        "requestBody": {"required": True, "content": _content(name)},
        "responses": {"200": {"description": "Acknowledged, or refused with a reason", "content": _content(answer)}},
    }


def wire_schemas() -> dict[str, Any]:
    """Return the JSON Schema of every wire struct by name."""
    types = list(_NAMED.values())
    roots, components = msgspec.json.schema_components(types, ref_template=_REF)
    messages = roots[types.index(wire.Message)]
    bundle = components["Bundle"]
    bundle["properties"]["messages"]["items"] = {"$ref": _REF.format(name="Message")}
    return {**components, "Message": messages}


def _content(name: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": _REF.format(name=name)}}
    return {wire.MSGPACK: schema, wire.JSON: schema}


ONE = "/api/v1/runs/{project}/{run}/reports"
MANY = "/api/v1/reports"


router = APIRouter(tags=["reports"])


@router.post(ONE, openapi_extra=openapi_body("Message", answer="Ack"))
async def send_one(request: Request, project: str, run: str) -> Response:
    """Send one message: a report, start, scalars, heartbeat, pause or finish; the response means that it is durable."""
    access, service = await require_sender(request), await components_of(request)
    media_type = _media_type(request)
    key = RunKey.checked(project, run)
    access.require(Scope.INGEST, project=project)
    with service.counters.ingest_seconds.time():
        ack = await service.ingest_service.ingest_message(
            await _body(request), media_type=media_type, key=key, access=access, cost=_cost(request)
        )
    return Response(wire.encode(ack, media_type=media_type), media_type=media_type)


@router.post(MANY, openapi_extra=openapi_body("Bundle", answer="Acks"))
async def send_many(request: Request) -> Response:
    """Send messages of any runs; each gets its own acknowledgement, so an invalid one does not affect the others."""
    access, service = await require_sender(request), await components_of(request)
    media_type = _media_type(request)
    with service.counters.ingest_seconds.time():
        body = await _body(request)
        acks = await service.ingest_service.ingest_bundle(
            body, media_type=media_type, access=access, cost=_cost(request)
        )
    return Response(wire.encode(acks, media_type=media_type), media_type=media_type)


async def _body(request: Request) -> Body:
    """Return the body, which the gateway passes on in one message."""
    body: Body = (await request.receive())["body"]
    return body


def _cost(request: Request) -> BodyCost:
    """Return the cost of the body, which the gateway keeps."""
    cost: BodyCost = request.scope["state"]["body_cost"]
    return cost


def _media_type(request: Request) -> str:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (wire.MSGPACK, wire.JSON):
        raise UnsupportedMedia(
            f"content-type must be {wire.MSGPACK} or {wire.JSON}, not {media_type[:64] or 'absent'!r}"
        )
    return media_type


ENDPOINTS: dict[re.Pattern[str], Callable[..., Awaitable[Response]]] = {
    re.compile(MANY): send_many,
    re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", ONE)): send_one,
}


class ReportEndpoints:
    """Calls the endpoints of reports ahead of the framework's routing and dependencies, a third of the ingest time.

    The routes are there for OpenAPI, and for requests with other methods or with a query, which is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]:
            for path, endpoint in ENDPOINTS.items():
                if match := path.fullmatch(scope["path"]):
                    response = await endpoint(Request(scope, receive, send), **match.groupdict())
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)
