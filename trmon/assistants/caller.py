"""Whose token a request is answered with: that of the process over stdio, that of each request over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trmon.assistants.tool_binding import AnyContext, ServiceOf
from trmon.domain.errors import Unauthenticated
from trmon_client.api import Service

BEARER = "bearer"


def one_caller(service: Service) -> ServiceOf:
    """Return what gives every request the same service: a process over stdio has one caller."""

    @contextmanager
    def service_of(_context: AnyContext) -> Iterator[Service]:
        yield service

    return service_of


def caller_by_token(url: str) -> ServiceOf:
    """Return what opens the service with the bearer token of each request, and never with a token of this process.

    Errors of a request: Unauthenticated without a token.
    """

    @contextmanager
    def service_of(context: AnyContext) -> Iterator[Service]:
        kind, _, token = (context.headers or {}).get("authorization", "").partition(" ")
        if kind.lower() != BEARER or not token:
            raise Unauthenticated("send the header Authorization: Bearer TOKEN, with a token of the trmon service")
        with _opened(url, token) as service:
            yield service

    return service_of


def _opened(url: str, token: str) -> Service:
    try:
        return Service(url, token)
    except ValueError as error:
        raise Unauthenticated(str(error)) from error
