"""Suggests a known name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of similar known names, to follow an error text; empty if no name is similar."""
    near = get_close_matches(name[:128], list(known), n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
