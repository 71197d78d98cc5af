"""CSV with one column per metric and one row per step, as pandas and wandb's page export it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs.log_format import LogFormat, LogItem, LogSample, bare_number

RUN_SEPARATOR = " - "
"""Between the run and the metric in the header of an export of wandb's page."""
NO_NAMES = ("{", "}", "|", "│", "=")
"""Characters that no name of a metric contains."""
EXTREMES = ("__MIN", "__MAX")


def _matches(sample: LogSample) -> bool:
    """Whether the first line has names and the second mostly numbers; lines of a console may have commas too."""
    lines = sample.head.splitlines()[:2]
    if len(lines) < 2 or "," not in lines[0] or any(mark in lines[0] for mark in NO_NAMES):
        return False
    try:
        header, first = (next(csv.reader([line]), []) for line in lines)
    except csv.Error:
        return False
    given = [value for value in first if value.strip()]
    n_numbers = sum(map(_is_number, given))
    is_table = len(header) == len(first) and n_numbers > len(given) / 2
    return is_table and not any(map(_is_number, filter(None, header)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(path: Path) -> Iterator[LogItem]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(file)
        try:
            names = _names(next(lines, []), path)
            for values in lines:
                yield _row(names, values, line=lines.line_num)
        except csv.Error as error:
            yield LogDefect(lines.line_num, f"is no CSV: {error}")


def _row(names: Sequence[str], values: Sequence[str], *, line: int) -> LogItem:
    """Return the row of a line; an empty cell is a metric that was not logged at that step, not NaN."""
    if len(values) > len(names):
        return LogDefect(line, f"has {len(values)} values; the header has {len(names)}")
    given = zip(names, values, strict=False)
    return LogRow({name: bare_number(value) for name, value in given if name and value.strip()}, line)


def _names(header: Sequence[str], path: Path) -> list[str]:
    """Return the metrics of the columns, empty for columns to leave out. Errors: InvalidInput for several runs."""
    runs = {name.partition(RUN_SEPARATOR)[0] for name in header if RUN_SEPARATOR in name}
    if len(runs) > 1:
        raise InvalidInput(str(path), f"holds {len(runs)} runs; export one: {', '.join(sorted(runs)[:4])}")
    names = [name.partition(RUN_SEPARATOR)[2] or name for name in header]
    return ["" if name.endswith(EXTREMES) else "step" if name.lower() == "step" else name.strip() for name in names]


CSV = LogFormat(
    name="csv", description="CSV with one column per metric (pandas, wandb's export)", matches=_matches, read=_read
)
