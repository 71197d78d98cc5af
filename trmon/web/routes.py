"""The page: its ES modules and styles, read once and served as they are written; it asks the API like everyone else.

Every file is in a folder whose name is a hash of all of them: a browser keeps them for good, and an upgraded
service names others.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

import trmon
from trmon.domain.errors import NotFound

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
STYLES = ("base.css", "lists.css", "run.css", "detail.css", "states.css", "vendor/uplot-1.6.32.css")
"""The style sheets, which browsers read as one, `page.css`; later ones override earlier ones."""
PLOTS = "vendor/uplot-1.6.32.js"
"""The chart library, a script and not a module."""
SHELL = "app.js"
"""The module that every view begins with."""
_IMPORT = re.compile(r'^import [^;]*?"\./([\w.]+)";$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served, plain or compressed: once and well, which would take too long at each request."""

    content: bytes
    gzipped: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, path: str, content: bytes) -> Asset:
        """Return a file of the package."""
        media_type = MEDIA_TYPES[path.rpartition(".")[2]]
        gzipped = gzip.compress(content, compresslevel=9, mtime=0)
        return cls(content, gzipped, media_type, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


def page(view: str | None = None) -> Asset:
    """Return the page for one of its views, which names to the browser the modules that the view will ask for.

    Args: view: the view's module without its ending; None for an address without a view.
    """
    modules = _modules(SHELL) if view is None else _modules(SHELL, f"{view}.js")
    links = [f'<link rel="modulepreload" href="{FOLDER}/{name}">' for name in modules if name != SHELL]
    if view in ("run", "compare"):
        links.append(f'<link rel="preload" as="script" href="{FOLDER}/{PLOTS}">')
    return _rendered("index.html", preloads="\n".join(links), demo=demo_command())


def demo_command() -> str:
    """Return the command that trains the demo: a checkout sets up what it needs, an installation may lack torch."""
    if Path(trmon.__file__).parent.parent.joinpath("Makefile").is_file():
        return "make demo ARGS=--keep"
    return "trmon demo --keep" if find_spec("torch") else "pip install 'trmon[lab]' && trmon demo --keep"


def _modules(*entries: str) -> list[str]:
    """Return modules with those that they import, in the order in which they are wanted."""
    found: list[str] = []
    for entry in entries:
        waiting = [entry]
        for name in waiting:
            if name not in found:
                found.append(name)
                waiting += _IMPORT.findall(ASSETS[name].content.decode())
    return found


def _rendered(name: str, **words: str) -> Asset:
    text = _PACKAGE.joinpath(name).read_text("utf-8")
    return Asset.of(name, Template(text).substitute(assets=FOLDER, **words).encode())


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in MEDIA_TYPES:
            yield f"{prefix}{entry.name}", entry


def _read() -> dict[str, bytes]:
    read = {path: file.read_bytes() for path, file in _walk(_PACKAGE.joinpath("static"))}
    styles = b"\n".join(read.pop(name) for name in STYLES)
    return dict(sorted((read | {"page.css": styles}).items()))


_PACKAGE = files("trmon.web")
_CONTENT = _read()
VERSION = hashlib.sha256(b"".join(name.encode() + b"\0" + body for name, body in _CONTENT.items())).hexdigest()[:20]
FOLDER = f"/assets/{VERSION}"
ASSETS = {path: Asset.of(path, content) for path, content in _CONTENT.items()}
"""Every file by its path in the folder."""
PAGES = {view: page(view) for view in ("fleet", "alerts", "compare", "run")}
UNKNOWN = page()
DOCS = _rendered("docs.html")
"""Where the OpenAPI document is."""


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
