"""The page: what people open; it asks the API like everyone else."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from trmon.domain.errors import NotFound

router = APIRouter(include_in_schema=False)

MEDIA_TYPES = {"page.js": "text/javascript", "page.css": "text/css"}


@router.get("/")
@router.get("/runs/{project}/{run}")
async def page() -> Response:
    """Return the page; its address says whether it shows all runs or one."""
    return Response(_file("index.html"), media_type="text/html")


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Return a file of the page."""
    if name not in MEDIA_TYPES:
        raise NotFound("file", name[:64])
    return Response(_file(name), media_type=MEDIA_TYPES[name], headers={"Cache-Control": "no-cache"})


@cache
def _file(name: str) -> str:
    return files("trmon.app.page").joinpath(name).read_text("utf-8")
