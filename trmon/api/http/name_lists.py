"""Names of signals or columns in a query, separated by commas."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from trmon.domain.model.errors import InvalidInput

MAX_NAMES = 128

Names = Annotated[str | None, Query(max_length=8192, description="Names, separated by commas.")]


def split_names(names: str | None) -> list[str]:
    """Return the names in their order, each once. Errors: InvalidInput for too many."""
    found = list(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
    if len(found) > MAX_NAMES:
        raise InvalidInput("names", f"at most {MAX_NAMES} names, and has {len(found)}")
    return found
