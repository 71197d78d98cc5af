"""Logs in JSON: one document, JSON Lines, and trainer_state.json of Hugging Face's Trainer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs.log_format import LogFormat, LogItem, LogSample, bare_number

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


def _read_document(path: Path) -> Iterator[LogItem]:
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
    read=_read_document,
    has_lines=False,
)


def _is_json_start(sample: LogSample) -> bool:
    """Whether the text is JSON: double quotes at its first key, or the name says so."""
    rest = sample.head.lstrip()[1:].lstrip()
    return sample.path.suffix == ".json" or rest[:1] in ('"', "{", "}", "]")


def _is_lines(sample: LogSample) -> bool:
    """Whether each of the first lines is an object; a file of one line is one if its name says so."""
    lines = [line for line in sample.head.splitlines() if line.strip()]
    complete = lines[:2]
    if len(lines) < 2 and sample.path.suffix not in (".jsonl", ".ndjson"):
        return False
    return bool(complete) and all(_object(line) is not None for line in complete)


def _object(line: str) -> dict[str, object] | None:
    try:
        found = parse_json(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read_lines(path: Path) -> Iterator[LogItem]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
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
    read=_read_lines,
)


def _is_trainer_state(sample: LogSample) -> bool:
    if sample.path.is_dir():
        return next(_state_files(sample.path), None) is not None
    return sample.head.lstrip().startswith("{") and '"log_history"' in _compact(sample)


def _compact(sample: LogSample) -> str:
    """Return what tells the format: the head, or the name where the history begins after the head."""
    return sample.head + ('"log_history"' if sample.path.name == FILE_NAME else "")


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
