"""Answers with the structs of `trmon_client.api`, which encode them and describe them in OpenAPI."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Response
from fastapi.routing import APIRoute

from trmon.domain.access import AuditAction, Scope
from trmon.domain.adaptation.proposal import AdaptationMode, NoChangeReason
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.silences import MatchOperator
from trmon.domain.batches.batch import PolicyRole, QuarantinePart
from trmon.domain.budget.off_policy_kinds import PipelineKind, Presence
from trmon.domain.budget.run_budget import BudgetState
from trmon.domain.collapse_risk.risk_reading import RiskLevel
from trmon.domain.findings.verdict import Word
from trmon.domain.health.judgement import Urgency, VerdictKind
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon_client.api.answers import ApiNumber, OpenEnum, encode_answer, prepare

JSON = "application/json"
REF = "#/components/schemas/{name}"
ENUMS: dict[str, type[Enum]] = {
    one.__name__: one
    for one in (
        *(AdaptationMode, NoChangeReason, Presence, PipelineKind, AlertState, DeliveryState, MatchOperator, PolicyRole),
        *(QuarantinePart, BudgetState, RiskLevel, Urgency, VerdictKind, Word, Scope, AuditAction, Severity),
        *(Resolution, RunState),
    )
}
"""The values of the strings that `trmon_client.api` names."""


_described: list[Any] = []
"""The types whose schemas OpenAPI refers to."""


class AnswerRoute(APIRoute):
    """A route whose endpoint returns structs: they are encoded in its thread, and nothing validates them again."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        kind = get_type_hints(endpoint, include_extras=True).get("return")
        if _holds_structs(kind):
            status = options.get("status_code") or 200
            options["response_model"] = None
            options["responses"] = {**(options.get("responses") or {}), status: {"content": content_of(kind)}}
            prepare(kind)
            endpoint = _encoding(endpoint, status=status)
        super().__init__(path, endpoint, **options)


def content_of(kind: Any) -> dict[str, Any]:
    """Return the OpenAPI entry for the content of a response with this type as JSON."""
    _described.append(kind)
    [schema], _ = _schemas([kind])
    return {JSON: {"schema": schema}}


def answer_schemas() -> dict[str, Any]:
    """Return the JSON Schema of every struct that routes answer with, and of the enumerations in them, by name."""
    _, components = _schemas(_described)
    return components | {
        name: {
            "type": "string",
            "title": name,
            "description": inspect.getdoc(kind),
            "enum": [one.value for one in kind],
        }
        for name, kind in ENUMS.items()
    }


def _schemas(kinds: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    roots, components = msgspec.json.schema_components(kinds, schema_hook=_value_schema, ref_template=REF)
    return _with_enums(list(roots)), _with_enums(components)


def _value_schema(kind: type) -> dict[str, Any]:
    if kind is OpenEnum:
        return {"type": "string"}
    if kind is not ApiNumber:
        raise NotImplementedError(kind)
    return {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["inf", "-inf"]}, {"type": "null"}]}


def _with_enums(schema: Any) -> Any:
    """Return a schema that refers to enumerations where `trmon_client.api` names them."""
    if isinstance(schema, list):
        return [_with_enums(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("title")
    if schema.get("type") == "string" and name in ENUMS:
        return {"$ref": REF.format(name=name)} | {key: schema[key] for key in schema.keys() - {"type", "title"}}
    return {name: _with_enums(value) for name, value in schema.items()}


def _holds_structs(kind: Any) -> bool:
    if isinstance(get_origin(kind) or kind, type) and issubclass(get_origin(kind) or kind, msgspec.Struct):
        return True
    return any(_holds_structs(part) for part in get_args(kind))


def _encoding(endpoint: Callable[..., Any], *, status: int) -> Callable[..., Any]:
    """Return an endpoint that answers with the JSON of what another one returns."""

    def response(answer: Any) -> Response:
        return Response(encode_answer(answer), status, media_type=JSON)

    @wraps(endpoint)
    def encoded(*given: Any, **named: Any) -> Response:
        return response(endpoint(*given, **named))

    @wraps(endpoint)
    async def awaited(*given: Any, **named: Any) -> Response:
        return response(await endpoint(*given, **named))

    return awaited if inspect.iscoroutinefunction(endpoint) else encoded
