"""The page's files, read once from the package; nothing else can be asked for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

IMPORT = re.compile(r'^import .* from "\./([\w/.-]+\.js)";$', re.MULTILINE)
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served."""

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, file: Traversable) -> Asset:
        """Return a file of the package."""
        content = file.read_bytes()
        media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
        return cls(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in MEDIA_TYPES:
            yield f"{prefix}{entry.name}", entry


def _imported(path: str, *, seen: dict[str, None]) -> dict[str, None]:
    """Return a module and every one that it imports, in order."""
    if path not in seen:
        seen[path] = None
        for name in IMPORT.findall(ASSETS[path].content.decode()):
            _imported(name, seen=seen)
    return seen


def _preloads(view: str) -> str:
    modules = (*_imported("app.js", seen={}), *_imported(view, seen={}))
    links = [f"</static/{path}>; rel=modulepreload" for path in dict.fromkeys(modules)]
    plots = [f"</static/{path}>; rel=preload; as=script" for path in ASSETS if "uplot" in path and path.endswith(".js")]
    return ", ".join([*links, *(plots if view == "run.js" else ())])


_PACKAGE = files("trmon.app.page")
INDEX = Asset.read(_PACKAGE.joinpath("index.html"))
ASSETS = {path: Asset.read(file) for path, file in _walk(_PACKAGE.joinpath("static"))}
"""Every file under static/ by its path."""
PRELOADS = {view: _preloads(view) for view in ("fleet.js", "alerts.js", "run.js")}
"""The header that lets a browser fetch all modules of a view at once, instead of finding them one after the other."""
