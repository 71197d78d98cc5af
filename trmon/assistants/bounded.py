"""Keeps answers small: texts of others are cut, numbers are rounded, times are written out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from trmon.domain.finding import JsonNumber, json_number
from trmon.terminal.text import printable

T = TypeVar("T")
DIGITS = 4
"""Significant digits of a number in an answer."""
NAME_CHARACTERS, TEXT_CHARACTERS = 160, 500


def bounded_text(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """Return text without control and invisible characters, cut to a number of characters; the cut says so."""
    shown = printable(text[: limit + 1])
    return shown if len(text) <= limit else f"{shown[:limit]} [cut: {len(text) - limit} more characters]"


def bounded_name(text: str) -> str:
    """Return a name, a tag or a value of a configuration, cut."""
    return bounded_text(text, NAME_CHARACTERS)


def rounded(value: float | None) -> JsonNumber:
    """Return a number with four significant digits as JSON can express it; NaN is null."""
    if value is None or math.isnan(value):
        return None
    return json_number(float(f"{value:.{DIGITS}g}"))


def written_time(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as ISO 8601 in UTC, to the second."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def taken(items: Iterable[T], limit: int) -> tuple[Sequence[T], bool]:
    """Return at most `limit` items, and whether there are more."""
    found = list(islice(items, limit + 1))
    return found[:limit], len(found) > limit
