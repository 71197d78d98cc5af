"""Parses comma-separated names of signals or columns in a query."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from trmon.domain.model.errors import InvalidInput

MAX_NAMES = 128

Names = Annotated[str | None, Query(max_length=8192, description="Names, separated by commas.")]


def split_names(names: str | None) -> list[str]:
    """Return the names in order without duplicates. Errors: InvalidInput for too many."""
    found = list(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
    if len(found) > MAX_NAMES:
        raise InvalidInput("names", f"has {len(found)} names; at most {MAX_NAMES} are allowed")
    return found
