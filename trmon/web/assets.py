"""The files of the page, read once from the package; no other path is served."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


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


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in MEDIA_TYPES:
            yield f"{prefix}{entry.name}", entry


def _read() -> dict[str, Asset]:
    return {path: Asset.of(path, file.read_bytes()) for path, file in _walk(_PACKAGE.joinpath("static"))}


_PACKAGE = files("trmon.web")
INDEX = Asset.of("index.html", _PACKAGE.joinpath("index.html").read_bytes())
DOCS = Asset.of("docs.html", _PACKAGE.joinpath("docs.html").read_bytes())
"""Where the OpenAPI document is."""
ASSETS = _read()
"""Every file under static/ by its path; `make web` bundles app.js, budget.js and page.css from src/."""
PLOTS = next(path for path in ASSETS if "uplot" in path and path.endswith(".js"))
"""The chart library, which only the view of a run loads."""
