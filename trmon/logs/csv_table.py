"""CSV with commas, tabs or semicolons: one column per metric and one row per step, or as trackers' pages export it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.logs.log_format import LogFormat, LogItem, LogSample, is_number
from trmon.logs.tables import RUN_COLUMNS, is_long, rows_of_table

DELIMITERS = ",\t;"
NO_NAMES = ("{", "}", "|", "│", "=")
SUFFIXES = (".csv", ".tsv")


def _matches(sample: LogSample) -> bool:
    """Whether the first line has names and the second mostly numbers; lines of a console may have commas too."""
    lines = sample.head.splitlines()[:2]
    if len(lines) < 2 or any(mark in lines[0] for mark in NO_NAMES):
        return False
    return any(_is_table(lines, delimiter, is_named=sample.path.suffix in SUFFIXES) for delimiter in DELIMITERS)


def _is_table(lines: Sequence[str], delimiter: str, *, is_named: bool) -> bool:
    try:
        header, first = (next(csv.reader([line], delimiter=delimiter), []) for line in lines)
    except csv.Error:
        return False
    if len(header) != len(first) or len(header) < 2 or any(map(is_number, filter(None, header))):
        return False
    given = [value for value in first if value.strip()]
    n_numbers = sum(map(is_number, given))
    is_export = is_named or is_long(header) or len(RUN_COLUMNS.intersection(header)) >= 3
    return n_numbers > len(given) / 2 or (is_export and n_numbers > 0)


def _read(path: Path) -> Iterator[LogItem]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        delimiter = max(DELIMITERS, key=file.readline().count)
        file.seek(0)
        lines = csv.reader(file, delimiter=delimiter)
        numbered = ((lines.line_num, values) for values in lines)
        try:
            yield from rows_of_table(next(numbered, (0, []))[1], numbered, path=path)
        except csv.Error as error:
            yield LogDefect(lines.line_num, f"is no CSV: {error}")


CSV = LogFormat(
    name="csv",
    description="CSV or TSV with a column per metric, or one of metrics and one of values (pandas, wandb, TensorBoard)",
    matches=_matches,
    read=_read,
)
