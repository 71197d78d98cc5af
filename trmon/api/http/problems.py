"""Maps every error to an HTTP status and RFC 9457 problem details, without internals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trmon.api.http.auth import HEADERS
from trmon.domain import errors
from trmon_client.core.wire import WireError

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL_LENGTH = 500

log = structlog.get_logger(__name__)


class Problem(BaseModel):
    """Problem details (RFC 9457); `field` names the invalid part of the request, `nearest` names that exist."""

    type: str = Field(examples=["urn:trmon:problem:invalid-input"])
    title: str
    status: int
    detail: str
    field: str | None = None
    nearest: list[str] | None = None


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "content": {MEDIA_TYPE: {}}, "description": "The request is invalid or not allowed"}
}
"""How OpenAPI describes the errors of every route."""

STATUSES: dict[type[Exception], tuple[HTTPStatus, str]] = {
    errors.TrmonError: (HTTPStatus.INTERNAL_SERVER_ERROR, "internal"),
    errors.Damaged: (HTTPStatus.INTERNAL_SERVER_ERROR, "internal"),
    errors.InvalidInput: (HTTPStatus.BAD_REQUEST, "invalid-input"),
    errors.UnreadParameter: (HTTPStatus.UNPROCESSABLE_ENTITY, "unread-parameter"),
    WireError: (HTTPStatus.BAD_REQUEST, "invalid-input"),
    errors.Unauthenticated: (HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    errors.Forbidden: (HTTPStatus.FORBIDDEN, "forbidden"),
    errors.NotFound: (HTTPStatus.NOT_FOUND, "not-found"),
    errors.Conflict: (HTTPStatus.CONFLICT, "conflict"),
    errors.Fenced: (HTTPStatus.CONFLICT, "conflict"),
    errors.QuotaExceeded: (HTTPStatus.FORBIDDEN, "quota-exceeded"),
    errors.TooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large"),
    errors.UnsupportedMedia: (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media"),
    errors.Overloaded: (HTTPStatus.TOO_MANY_REQUESTS, "overloaded"),
    errors.NotReady: (HTTPStatus.SERVICE_UNAVAILABLE, "not-ready"),
    errors.DatabaseAway: (HTTPStatus.SERVICE_UNAVAILABLE, "not-ready"),
    errors.LakeUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "lake-unavailable"),
}
"""The status and problem type of each class of expected errors; a subclass without an entry inherits its base's."""
EXPECTED = (errors.TrmonError, WireError)


def install_problem_handlers(app: FastAPI, *, page_at: Callable[[Request], Response | None]) -> None:
    """Answer the framework's errors as problems too; the gateway answers domain errors.

    Args: page_at: returns what a person sees at an address that has no route, None for requests of programs.
    """

    async def no_route(request: Request, error: Exception) -> Response:
        return page_at(request) or await _http_exception(request, error)

    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(HTTPStatus.NOT_FOUND, no_route)
    app.add_exception_handler(Exception, _unexpected)


def problem_response(error: Exception) -> Response:
    """Return the problem details of an expected error, and log it if the service is at fault."""
    status, kind = status_of(type(error))
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request_failed", exc_info=error)
    return problem_details(
        status,
        kind,
        detail=str(error),
        field=getattr(error, "field", None),
        nearest=getattr(error, "nearest", ()),
        headers=_headers(error),
    )


def status_of(kind: type[Exception]) -> tuple[HTTPStatus, str]:
    """Return the status and the problem type of a class of expected errors."""
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)


def problem_details(
    status: HTTPStatus,
    kind: str,
    *,
    detail: str,
    field: str | None = None,
    nearest: Sequence[str] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """Return problem details as a response; a long detail is truncated."""
    content: dict[str, Any] = {
        "type": f"urn:trmon:problem:{kind}",
        "title": status.phrase,
        "status": int(status),
        "detail": detail[:MAX_DETAIL_LENGTH],
    }
    if field is not None:
        content["field"] = field[:MAX_DETAIL_LENGTH]
    if nearest:
        content["nearest"] = nearest
    return Response(msgspec.json.encode(content), status, headers, MEDIA_TYPE)


def _headers(error: Exception) -> dict[str, str]:
    match error:
        case errors.Overloaded():
            return {"Retry-After": str(max(1, math.ceil(error.retry_after_seconds)))}
        case errors.NotReady():
            return {"Retry-After": "1"}
        case errors.Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case errors.UnsupportedMedia():
            return {"Accept": "application/msgpack, application/json", "Accept-Encoding": "zstd, gzip"}
        case _:
            return {}


async def _invalid_request(_request: Request, error: Exception) -> Response:
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": ""}
    field = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return problem_details(HTTPStatus.BAD_REQUEST, "invalid-input", detail=f"{field}: {first['msg']}", field=field)


async def _http_exception(request: Request, error: Exception) -> Response:
    status = HTTPStatus(error.status_code if isinstance(error, HTTPException) else 500)
    detail = {
        HTTPStatus.NOT_FOUND: f"no route {request.url.path[:128]!r}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not allowed on {request.url.path[:128]!r}",
    }.get(status, status.phrase)
    headers = dict(getattr(error, "headers", None) or {})
    if "GET" in headers.get("Allow", "").split(", "):
        headers["Allow"] += ", HEAD"
    return problem_details(status, status.name.lower().replace("_", "-"), detail=detail, headers=headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request_failed", method=request.method, path=request.url.path, exc_info=error)
    return problem_details(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal",
        detail="The service failed; see its log.",
        headers=HEADERS,
    )
