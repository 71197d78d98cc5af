"""One JSON document: an object of numbers, an object of lists (columns), or a list of objects (rows)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.model.errors import InvalidInput
from trmon.log_formats.log_format import LogFormat, LogItem, LogSample
from trmon.log_formats.number_text import bare_number

WRAPPERS = ("data", "metrics", "history")
"""Keys of loggers around the metrics of a row; their metrics keep their own names."""
MAX_DEPTH = 8
"""Objects in more objects than this are no metrics, and are left out."""


def load_json(path: Path) -> Any:
    """Return the document of a JSON file; NaN and Infinity are accepted. Errors: InvalidInput."""
    try:
        return parse_json(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"is not valid JSON: {error}") from error


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document; numbers too large for a float64 stay text. Errors: ValueError, RecursionError."""
    return json.loads(text, parse_float=_exact_number)


def _exact_number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def flat_row(row: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Return a row whose nested objects are flattened; names are joined with a slash."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, dict):
            flat[prefix + key] = bare_number(value) if isinstance(value, str) else value
        elif key in WRAPPERS and not prefix:
            flat |= flat_row({name: inner for name, inner in value.items() if name not in WRAPPERS})
        elif prefix.count("/") < MAX_DEPTH:
            flat |= flat_row(value, prefix=f"{prefix}{key}/")
    return flat


def rows_of_objects(objects: Iterable[Any]) -> Iterator[LogItem]:
    """Yield the objects of a list as rows, and a defect for what is not an object."""
    for number, row in enumerate(objects, start=1):
        yield LogRow(flat_row(row)) if isinstance(row, dict) else LogDefect(0, f"entry {number} is not a JSON object")


def _read(path: Path) -> Iterator[LogItem]:
    document = load_json(path)
    if isinstance(document, list):
        yield from rows_of_objects(document)
        return
    if not isinstance(document, dict):
        raise InvalidInput(str(path), "must be a JSON object of numbers by name, or a list of such objects")
    row = flat_row(document)
    columns = {name: values for name, values in row.items() if isinstance(values, list)}
    if columns and len({len(values) for values in columns.values()}) == 1:
        rows = zip(*columns.values(), strict=True)
        yield from (LogRow(dict(zip(columns, values, strict=True))) for values in rows)
        return
    yield LogRow(row)


JSON = LogFormat(
    name="json",
    description="a JSON object of numbers or of columns, or a list of objects",
    matches=lambda sample: sample.head.lstrip()[:1] in ("{", "[") and _is_json_start(sample),
    read=_read,
    has_lines=False,
)


def _is_json_start(sample: LogSample) -> bool:
    """Whether the text is JSON: double quotes at its first key, or the name says so."""
    rest = sample.head.lstrip()[1:].lstrip()
    return sample.path.suffix == ".json" or rest[:1] in ('"', "{", "}", "]")
