"""Arguments and answers of the tools: small answers, with texts cut, numbers rounded, and times written out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, TypeVar

from mcp.types import CallToolResult, TextContent
from pydantic import Field
from pydantic_core import to_json

from trmon.domain.errors import InvalidInput
from trmon.domain.severity import JsonNumber, json_number
from trmon.terminal.arguments import parse_run_name
from trmon.terminal.text import printable

Answer = dict[str, Any]
"""What a tool answers; a field that is unknown is None, and left out of the result."""
MAX_ANSWER_BYTES = 32_768
"""Of one answer: every limit of a tool keeps it far below, whatever a trainer sends."""


def as_result(answer: Answer) -> CallToolResult:
    """Return an answer as JSON and text: clients show one. Errors: InvalidInput for one over `MAX_ANSWER_BYTES`."""
    document = without_unknown(answer)
    text = to_json(document).decode()
    if len(text.encode()) > MAX_ANSWER_BYTES:
        raise InvalidInput(
            "limit", f"the answer has over {MAX_ANSWER_BYTES} bytes; ask for fewer items, points or names"
        )
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=document)


def without_unknown(value: Any) -> Any:
    """Return an answer without the fields that are None."""
    if isinstance(value, dict):
        return {name: without_unknown(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_unknown(item) for item in value]
    return value


RunName = Annotated[str, Field(description="The run as PROJECT/RUN, as list_runs names it.", max_length=300)]
FromStep = Annotated[int | None, Field(ge=0, description="The first step; by default the first of the run.")]
ToStep = Annotated[int | None, Field(ge=0, description="The last step; by default the newest.")]


def checked_run(run: str) -> str:
    """Return a run's name if it is one. Errors: InvalidInput that says where names are listed."""
    return str(parse_run_name(run, otherwise="; list_runs names the runs"))


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


def picked(source: object, *names: str, limit: int = TEXT_CHARACTERS, **renamed: str) -> Answer:
    """Return attributes by their names, then those that the answer names otherwise: numbers rounded, texts cut."""
    return {
        key: _short(getattr(source, name), limit) for key, name in (*zip(names, names, strict=True), *renamed.items())
    }


def _short(value: Any, limit: int) -> Any:
    match value:
        case float():
            return rounded(value)
        case str():
            return bounded_text(value, limit)
    return value


def written_time(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as ISO 8601 in UTC, to the second."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def taken(items: Iterable[T], limit: int) -> tuple[Sequence[T], bool]:
    """Return at most `limit` items, and whether there are more."""
    found = list(islice(items, limit + 1))
    return found[:limit], len(found) > limit
