"""JSON Lines: one object per step, as verl's file logger, prime-rl, ms-swift and exports of wandb write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.log_formats.json_document import flat_row, parse_json
from trmon.log_formats.log_format import LogFormat, LogItem, LogSample

NOT_AN_OBJECT = "is not a JSON object"


def _matches(sample: LogSample) -> bool:
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


def _read(path: Path) -> Iterator[LogItem]:
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
    matches=_matches,
    read=_read,
)
