"""The page: what people open; it asks the API like everyone else."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from trmon.domain.model.errors import NotFound
from trmon.web.assets import ASSETS, DOCS, INDEX, PLOTS, Asset

router = APIRouter(include_in_schema=False)

IfNoneMatch = Annotated[str | None, Header()]
AcceptEncoding = Annotated[str, Header()]


@router.get("/")
async def fleet_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows the fleet at this address."""
    return _answer(INDEX, if_none_match)


@router.get("/alerts")
async def alerts_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows alerts at this address."""
    return _answer(INDEX, if_none_match)


@router.get("/compare")
async def compare_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which compares runs at this address."""
    return _answer(INDEX, if_none_match, preload=PLOTS)


@router.get("/runs/{project}/{run}")
async def run_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows a run at this address."""
    return _answer(INDEX, if_none_match, preload=PLOTS)


@router.get("/rules/{name}")
async def rule_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return the page, which shows the runbook of a rule at this address."""
    return _answer(INDEX, if_none_match)


@router.get("/docs")
async def docs_page(if_none_match: IfNoneMatch = None) -> Response:
    """Return a page that says where the OpenAPI document is."""
    return _answer(DOCS, if_none_match)


def unknown_page(request: Request) -> Response | None:
    """Return the page for an address that a person opened and that nothing serves; None for other requests."""
    is_of_person = "text/html" in request.headers.get("accept", "")
    if not is_of_person or request.method not in ("GET", "HEAD") or request.url.path.startswith(("/api/", "/static/")):
        return None
    answer = _answer(INDEX, None)
    answer.status_code = 404
    return answer


@router.get("/static/{path:path}")
async def static_file(path: str, if_none_match: IfNoneMatch = None, accept_encoding: AcceptEncoding = "") -> Response:
    """Return a file of the page. Errors: NotFound."""
    if path not in ASSETS:
        raise NotFound("file", path[:64])
    return _answer(ASSETS[path], if_none_match, is_gzipped="gzip" in accept_encoding)


def _answer(asset: Asset, known: str | None, *, preload: str | None = None, is_gzipped: bool = False) -> Response:
    """A browser asks anew each time, so that an upgraded service is never shown by an old page.

    Args: preload: the script that the view will ask for, so that the browser need not wait until it does; is_gzipped:
    whether the client accepts gzip.
    """
    headers = {"Cache-Control": "no-cache", "ETag": asset.etag}
    if preload:
        headers["Link"] = f"</static/{preload}>; rel=preload; as=script"
    if known == asset.etag:
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    content = asset.gzipped if is_gzipped else asset.content
    return Response(content, media_type=asset.media_type, headers=headers)
