"""Parses and checks comma-separated names of signals or columns in a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated

from fastapi import Query

from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.similar_names import did_you_mean

MAX_NAMES = 128

Names = Annotated[str | None, Query(max_length=8192, description="Names, separated by commas.")]


def split_names(names: str | None) -> list[str]:
    """Return the names in order without duplicates. Errors: InvalidInput for too many."""
    found = list(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
    if len(found) > MAX_NAMES:
        raise InvalidInput("names", f"has {len(found)} names; at most {MAX_NAMES} are allowed")
    return found


def check_known(names: Iterable[str], known: Collection[str], *, kind: str, listed_by: str) -> None:
    """Raise InvalidInput for the first name that is not known. Args: listed_by: where a caller finds them."""
    for name in names:
        if name not in known:
            message = f"{name!r:.130} is not a known {kind}{did_you_mean(name, known)}; {listed_by} lists them"
            raise InvalidInput("names", message)
