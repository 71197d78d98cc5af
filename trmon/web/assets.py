"""The files of the page, read once from the package: ES modules and styles as they are written, without a build.

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

import trmon

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
