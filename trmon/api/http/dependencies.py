"""Callers: what the one who calls may do, as routes ask for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope as Connection

from trmon.domain.model.access import Access, Scope
from trmon.domain.model.errors import Unauthenticated


def access_of(connection: Connection) -> Access | None:
    """Return what the caller of a guarded path may do; None on an open one."""
    access: Access | None = connection.get("state", {}).get("access")
    return access


def client_address(connection: Connection) -> str:
    """Return the address from which a request comes, empty where it is not known."""
    client: tuple[str, int] | None = connection.get("client")
    return client[0] if client else ""


def _with(request: Request, scope: Scope) -> Access:
    access = access_of(request.scope)
    if access is None:
        raise Unauthenticated("this path is not guarded, so nobody is known here")
    access.require(scope)
    return access


async def require_reader(request: Request) -> Access:
    """Let only those pass who may read. Errors: Unauthenticated, Forbidden."""
    return _with(request, Scope.READ)


async def require_sender(request: Request) -> Access:
    """Let only those pass who may send reports. Errors: Unauthenticated, Forbidden."""
    return _with(request, Scope.INGEST)


async def require_admin(request: Request) -> Access:
    """Let only those pass who may change things. Errors: Unauthenticated, Forbidden."""
    return _with(request, Scope.ADMIN)


Reader = Annotated[Access, Depends(require_reader)]
"""A caller who may read."""
Sender = Annotated[Access, Depends(require_sender)]
"""A caller who may send reports."""
Admin = Annotated[Access, Depends(require_admin)]
"""A caller who may change things."""
