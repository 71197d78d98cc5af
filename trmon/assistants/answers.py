"""Arguments and answers of the tools: answers of the service without what is long, unknown or empty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import Field

from trmon.domain.identity import RunKey
from trmon.domain.severity import json_number
from trmon.terminal.text import printable

Answer = dict[str, Any]
"""What a tool answers; a field that is None is left out of the result."""
RunName = Annotated[str, Field(description="The run as PROJECT/RUN, as list_runs names it.", max_length=300)]
FromStep = Annotated[int | None, Field(ge=0, description="The first step; by default the first of the run.")]
ToStep = Annotated[int | None, Field(ge=0, description="The last step; by default the newest.")]
T = TypeVar("T")
DIGITS = 4
"""Significant digits of a number in an answer."""
NAME_CHARACTERS, TEXT_CHARACTERS = 160, 500
MAX_ITEMS, MAX_NAMES = 8, 40
"""Of one list, and of one mapping."""
TIMES = (1e9, 4e9)
"""Seconds since the epoch; `warn_at` of a risk is a probability."""
EMPTY: tuple[Any, ...] = (None, "", [], {})


def checked_run(run: str) -> str:
    """Return a run's name if it is one. Errors: InvalidInput that says where names are listed."""
    return str(RunKey.parse(run, otherwise="; list_runs names the runs"))


def shortened(answer: object, *without: str, text: int = TEXT_CHARACTERS, items: int = MAX_ITEMS) -> Answer:
    """Return an answer of the service, or a mapping of answers, as a tool shows it.

    Numbers have four digits, times are written out, texts are cut and printable, and unknown and empty fields are left
    out. Of a longer list or mapping the first items are kept, and `<field>_left_out` counts the others.

    Args: without: fields to leave out at any depth, as `field` or `parent.field`; text: characters of a text; items: of
    a list.
    """

    def of(value: Any, name: str = "") -> Any:
        match value:
            case float() if name.rpartition("_")[2] == "at" and TIMES[0] < value < TIMES[1]:
                return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            case float():
                return rounded(value)
            case str():
                return bounded_text(value, text)
            case list() | tuple():
                return [of(one, name) for one in value[:items]]
            case dict():
                return mapping(value, name)
        return value

    def mapping(value: dict[str, Any], name: str) -> Answer:
        found: Answer = {}
        kept = {key: one for key, one in value.items() if key not in without and f"{name}.{key}" not in without}
        for key, one in islice(kept.items(), MAX_NAMES):
            shown, field = of(one, key), bounded_text(key, NAME_CHARACTERS)
            if shown not in EMPTY:
                found[field] = shown
            limit = MAX_NAMES if isinstance(one, dict) else items
            if isinstance(one, list | tuple | dict) and len(one) > limit:
                found[f"{field}_left_out"] = len(one) - limit
        return found

    return mapping(msgspec.to_builtins(answer, enc_hook=_builtin, str_keys=True), "")


def _builtin(value: Any) -> Any:
    """Return a number, a word or an array of an answer as a value of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value) if isinstance(value, float) else str(value)


def bounded_text(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """Return text without control and invisible characters, cut to a number of characters; the cut says so."""
    shown = printable(text[: limit + 1])
    return shown if len(text) <= limit else f"{shown[:limit]} [cut: {len(text) - limit} more characters]"


def as_text(value: Any) -> str:
    """Return a value of a configuration as text, other values than texts as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def rounded(value: float) -> float | str | None:
    """Return a number with four significant digits as JSON can express it; NaN is null."""
    return json_number(value if math.isnan(value) else float(f"{value:.{DIGITS}g}"))


def taken(items: Iterable[T], limit: int) -> tuple[Sequence[T], bool | None]:
    """Return at most `limit` items, and whether there are more, None if not."""
    found = list(islice(items, limit + 1))
    return found[:limit], len(found) > limit or None
