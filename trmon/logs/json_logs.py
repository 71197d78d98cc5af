"""Logs in JSON: one document, JSON Lines, and trainer_state.json of Hugging Face's Trainer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs.log_format import LogFormat, LogItem, LogSample, bare_number, logged
from trmon.logs.tables import CHART_COLUMNS, is_long, joined_metrics, rows_of_table

WRAPPERS = ("data", "metrics", "history")
"""Keys of loggers around the metrics of a row; their metrics keep their own names."""
MAX_DEPTH = 8
"""Objects in more objects than this are no metrics, and are left out."""
NOT_AN_OBJECT = "is not a JSON object"
FILE_NAME = "trainer_state.json"


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


_DECODER = json.JSONDecoder(parse_float=_exact_number)
_BETWEEN = (" ", "\n", "\r", "\t", ",", "\x1e")
"""Characters between documents; the last one begins a record of RFC 7464."""
_FAST_DECODER = msgspec.json.Decoder()
NO_ROWS = "must be a JSON object of numbers by name, or a list of such objects or of columns"


def flat_row(row: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Return a row whose nested objects are flattened; names are joined with a slash."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, dict):
            flat[prefix + key] = logged(bare_number(value)) if isinstance(value, str) else value
        elif key in WRAPPERS and not prefix:
            flat |= flat_row({name: inner for name, inner in value.items() if name not in WRAPPERS})
        elif prefix.count("/") < MAX_DEPTH:
            flat |= flat_row(value, prefix=f"{prefix}{key}/")
    return flat


def rows_of_objects(objects: Iterable[Any]) -> Iterator[LogItem]:
    """Yield objects as rows, joined to one a step if each has one metric, and a defect for what is no object."""
    items = (
        LogRow(flat_row(row)) if isinstance(row, dict) else LogDefect(0, f"entry {number} {NOT_AN_OBJECT}")
        for number, row in enumerate(objects, start=1)
    )
    return _joined_if_long(items)


def _joined_if_long(items: Iterator[LogItem]) -> Iterator[LogItem]:
    first = next(items, None)
    if first is None:
        return iter(())
    every = chain([first], items)
    return joined_metrics(every) if isinstance(first, LogRow) and is_long(first.values) else every


def _read_document(path: Path) -> Iterator[LogItem]:
    """Yield the rows of a JSON file with one document, or several after each other. Errors: InvalidInput."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    documents: list[Any] = []
    position = 0
    try:
        while position < len(text):
            document, position = _DECODER.raw_decode(text, position)
            documents.append(document)
            while text[position : position + 1] in _BETWEEN:
                position += 1
    except (ValueError, RecursionError) as error:
        # A trainer that was killed leaves half an object at the end of several.
        if len(documents) < 2:
            raise InvalidInput(str(path), f"is not valid JSON: {error}") from error
    yield from rows_of_objects(documents) if len(documents) > 1 else _rows_of_document(documents[0], path)


def _rows_of_document(document: Any, path: Path) -> Iterator[LogItem]:
    """Yield the rows of a list of objects or of columns, in the document or in an object of it, or its one row."""
    if isinstance(document, list):
        yield from _rows_of_list(document, path)
        return
    if not isinstance(document, dict):
        raise InvalidInput(str(path), NO_ROWS)
    inner = (document, *(value for value in document.values() if isinstance(value, dict)))
    lists: list[list[Any]] = [value for values in inner for value in values.values() if _has_objects(value)]
    columns = [found for values in inner if (found := _columns(values))]
    if lists:
        longest = max(lists, key=len)
        yield from rows_of_objects(longest)
    elif columns:
        names, *lines = columns[0], *zip(*columns[0].values(), strict=True)
        yield from rows_of_objects(dict(zip(names, line, strict=True)) for line in lines)
    else:
        yield LogRow(flat_row(document))


def _has_objects(value: Any) -> bool:
    """Whether a value is a list of objects that have numbers."""
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return False
    return any(isinstance(number, int | float) for item in value for number in flat_row(item).values())


def _columns(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of an object: lists of numbers, all equally long; none for another object."""
    lists = {name: value for name, value in flat_row(values).items() if isinstance(value, list) and value}
    is_table = len({len(column) for column in lists.values()}) == 1
    is_plain = all(isinstance(cell, int | float | str | None) for column in lists.values() for cell in column)
    return lists if is_table and is_plain else {}


def _rows_of_list(entries: list[Any], path: Path) -> Iterator[LogItem]:
    """Yield the rows of objects, of lines below a header, or of TensorBoard's [wall time, step, value]."""
    if not entries or not all(isinstance(entry, list) for entry in entries):
        yield from rows_of_objects(entries)
        return
    header: list[Any] = entries[0]
    is_chart = len(header) == len(CHART_COLUMNS) and all(isinstance(cell, int | float) for cell in header)
    if not is_chart and not all(isinstance(cell, str) for cell in header):
        raise InvalidInput(str(path), NO_ROWS)
    lines = (
        (0, ["" if cell is None else str(cell) for cell in line]) for line in (entries if is_chart else entries[1:])
    )
    yield from rows_of_table(CHART_COLUMNS if is_chart else header, lines, path=path)


JSON = LogFormat(
    name="json",
    description="JSON: objects after each other, a list of objects or of columns, or TensorBoard's chart",
    matches=lambda sample: sample.head.lstrip()[:1] in ("{", "[") and _is_json_start(sample),
    read=_read_document,
    has_lines=False,
)


def _is_json_start(sample: LogSample) -> bool:
    """Whether the text is JSON: double quotes at its first key, or the name says so."""
    text = sample.head.lstrip()
    rest = text[1:].lstrip()
    return sample.path.suffix == ".json" or rest[:1] in ('"', "{", "}", "]") or text[:1] == rest[:1] == "["


def _is_lines(sample: LogSample) -> bool:
    """Whether each of the first lines is an object; a file of one line is one if its name says so."""
    lines = [line for line in sample.head.splitlines() if line.strip()]
    complete = lines[:2]
    if len(lines) < 2 and sample.path.suffix not in (".jsonl", ".ndjson"):
        return False
    return bool(complete) and all(_object(line.encode()) is not None for line in complete)


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line: by the fast decoder, or by that for NaN, Infinity and numbers too large."""
    try:
        found = _FAST_DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = parse_json(line.decode("utf-8-sig", errors="replace"))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _rows_of_lines(path: Path) -> Iterator[LogItem]:
    with path.open("rb") as file:
        pending: int | None = None
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if pending is not None:
                yield LogDefect(pending, NOT_AN_OBJECT)
                pending = None
            row = _object(line)
            if row is None:
                # A trainer that was killed leaves half a line at the end, and only there.
                pending = number
            else:
                yield LogRow(flat_row(row), number)
        if pending is not None:
            yield LogDefect(pending, NOT_AN_OBJECT, is_end=True)


JSON_LINES = LogFormat(
    name="jsonl",
    description="JSON Lines (verl's file logger, prime-rl, ms-swift, wandb history)",
    matches=_is_lines,
    read=lambda path: _joined_if_long(_rows_of_lines(path)),
)


def _is_trainer_state(sample: LogSample) -> bool:
    if sample.path.is_dir():
        return next(_state_files(sample.path), None) is not None
    # The history may begin after the head.
    return sample.head.lstrip().startswith("{") and (sample.path.name == FILE_NAME or '"log_history"' in sample.head)


def _read_trainer_state(path: Path) -> Iterator[LogItem]:
    document = load_json(_state_file(path))
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list):
        raise InvalidInput(str(path), "must have a list named log_history")
    yield from rows_of_objects(history)


def _state_file(path: Path) -> Path:
    """Return the state in a folder of a run: its own, else that of its newest checkpoint. Errors: InvalidInput."""
    found = next(_state_files(path), None) if path.is_dir() else path
    if found is None:
        raise InvalidInput(str(path), f"has no {FILE_NAME} any more")
    return found


def _state_files(folder: Path) -> Iterator[Path]:
    """Yield the state in a folder of a run, then those of its checkpoints, the newest first."""
    checkpoints = sorted(folder.glob(f"checkpoint-*/{FILE_NAME}"), key=_checkpoint_step, reverse=True)
    return (file for file in (folder / FILE_NAME, *checkpoints) if file.is_file())


def _checkpoint_step(file: Path) -> int:
    step = file.parent.name.removeprefix("checkpoint-")
    return int(step) if step.isdigit() else -1


TRAINER_STATE = LogFormat(
    name="trainer_state",
    description="trainer_state.json of Hugging Face's Trainer, or a folder with one or with checkpoints",
    matches=_is_trainer_state,
    read=_read_trainer_state,
    files=lambda path: [_state_file(path)],
    has_lines=False,
)
