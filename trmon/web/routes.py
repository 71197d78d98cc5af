"""The page: what people open; it asks the API like everyone else."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from trmon.domain.errors import NotFound
from trmon.web.assets import ASSETS, DOCS, PAGES, UNKNOWN, VERSION, Asset

FOR_GOOD = "public, max-age=31536000, immutable"
ANEW = "no-cache"
"""A browser asks again each time, so that an upgraded service is never shown by an old page."""

router = APIRouter(include_in_schema=False)

IfNoneMatch = Annotated[str | None, Header()]
AcceptEncoding = Annotated[str, Header()]


@router.get("/")
async def fleet_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows the fleet at this address."""
    return _answer(PAGES["fleet"], if_none_match)


@router.get("/alerts")
@router.get("/rules/{name}")
async def alerts_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows alerts, or the runbook of a rule, at this address."""
    return _answer(PAGES["alerts"], if_none_match)


@router.get("/compare")
async def compare_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which compares runs at this address."""
    return _answer(PAGES["compare"], if_none_match)


@router.get("/runs/{project}/{run}")
async def run_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows a run at this address."""
    return _answer(PAGES["run"], if_none_match)


@router.get("/docs")
async def docs_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return a page that says where the OpenAPI document is."""
    return _answer(DOCS, if_none_match)


def unknown_page(request: Request) -> Response | None:
    """Return the page for an address that a person opened and that nothing serves; None for other requests."""
    is_of_person = "text/html" in request.headers.get("accept", "")
    if not is_of_person or request.method not in ("GET", "HEAD") or request.url.path.startswith(("/api/", "/assets/")):
        return None
    answer = _answer(UNKNOWN, None)
    answer.status_code = 404
    return answer


@router.get("/assets/{version}/{path:path}")
async def asset(
    version: str, path: str, if_none_match: IfNoneMatch = None, accept_encoding: AcceptEncoding = ""
) -> Response:
    """Return a file of the page, to be kept for good; under the name of another version, for now.

    While replicas of two versions answer, either's page asks the other for files. Errors: NotFound.
    """
    if path not in ASSETS:
        raise NotFound("file", path[:64])
    kept = FOR_GOOD if version == VERSION else ANEW
    return _answer(ASSETS[path], if_none_match, kept=kept, is_gzipped="gzip" in accept_encoding)


def _answer(file: Asset, known: str | None, *, kept: str = ANEW, is_gzipped: bool = False) -> Response:
    """Args: kept: how long a browser keeps the file; is_gzipped: whether the client accepts gzip."""
    headers = {"Cache-Control": kept, "ETag": file.etag}
    if known == file.etag:
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    content = file.gzipped if is_gzipped else file.content
    return Response(content, media_type=file.media_type, headers=headers)
