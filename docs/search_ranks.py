"""How the site's search ranks pages: a hook of MkDocs."""

from __future__ import annotations

from typing import Any

RANKS = {"decisions/": 0.2, "reference/": 0.6, "benchmarks": 0.6, "collapse-benchmark": 0.6, "reliability": 0.6}
"""The factor of pages that are looked up, by how their path begins; guides come before them."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Set the page's rank, which Material's search reads."""
    rank = next((rank for start, rank in RANKS.items() if page.file.src_uri.startswith(start)), 1.0)
    page.meta.setdefault("search", {})["boost"] = rank
    return markdown
