"""The OpenAPI description of the wire format, generated from its structs."""

from __future__ import annotations

from typing import Any

import msgspec

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
