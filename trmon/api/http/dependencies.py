"""Dependencies that give routes their caller's access, or refuse the request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope as Connection

from trmon.domain.model.access import EVERYTHING, Access, Scope
from trmon.domain.model.errors import Unauthenticated


def access_of(connection: Connection) -> Access | None:
    """Return what the caller of a guarded path may do; None on an open path."""
    access: Access | None = connection.get("state", {}).get("access")
    return access


def client_address(connection: Connection) -> str:
    """Return the address of a request's client, empty if it is unknown."""
    client: tuple[str, int] | None = connection.get("client")
    return client[0] if client else ""


def caller_name(access: Access, *, address: str) -> str:
    """Return whom limits count a request for: its token, or its address if it has none."""
    return access.caller if access != EVERYTHING else address


def _require(request: Request, scope: Scope) -> Access:
    access = access_of(request.scope)
    if access is None:
        raise Unauthenticated("this path does not authenticate its callers")
    access.require(scope)
    return access


async def require_reader(request: Request) -> Access:
    """Require the read scope. Errors: Unauthenticated, Forbidden."""
    return _require(request, Scope.READ)


async def require_sender(request: Request) -> Access:
    """Require the ingest scope. Errors: Unauthenticated, Forbidden."""
    return _require(request, Scope.INGEST)


async def require_admin(request: Request) -> Access:
    """Require the admin scope. Errors: Unauthenticated, Forbidden."""
    return _require(request, Scope.ADMIN)


Reader = Annotated[Access, Depends(require_reader)]
"""A caller who may read."""
Sender = Annotated[Access, Depends(require_sender)]
"""A caller who may send reports."""
Admin = Annotated[Access, Depends(require_admin)]
"""A caller who may change things."""
