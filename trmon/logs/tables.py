"""Rows of tables, whatever file they are in: wide ones, one metric a row, and what the pages of trackers export."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.translation import translate
from trmon.logs.log_format import TIME, LogItem, is_number, logged, number_text

RUN_SEPARATOR = " - "
"""Between the run and the metric in the header of an export of wandb's page."""
EXTREMES = ("__MIN", "__MAX")
RUN_COLUMNS = {"State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep"}
"""Of the table of runs that wandb's page exports; it has three of them at least."""
CHART_COLUMNS = ("wall time", "step", "value")
"""Of the CSV that TensorBoard's page exports for one chart."""
TAG = "-tag-"
"""Before the metric in the name of that file."""
COPY = re.compile(r" ?\(\d+\)$")
"""What browsers add to the name of a file that exists."""
METRIC_COLUMNS, VALUE_COLUMNS = ("metric", "metric_name", "name", "tag", "key", "variable"), ("value", "metric_value")
STEP_COLUMNS = ("step", "global_step", "_step", "iteration", "epoch")
TIME_COLUMNS = ("timestamp", "_timestamp", "wall_time", "wall time", "time")


def rows_of_table(
    header: Sequence[str], lines: Iterable[tuple[int, Sequence[str]]], *, path: Path
) -> Iterator[LogItem]:
    """Yield the rows of a table; an empty cell is a metric that was not logged at that step, not NaN.

    Args: lines: the number and the cells of each; path: of the file, whose name may be that of the metric.
    Errors: InvalidInput for several runs.
    """
    lowered = [name.strip().lower() for name in header]
    if tuple(lowered) == CHART_COLUMNS:
        header = [TIME, "step", metric_of_file(path)]
    elif len(RUN_COLUMNS.intersection(header)) >= 3:
        lines = list(lines)
        if len(lines) > 1:
            raise InvalidInput(
                str(path),
                f"is wandb's table of {len(lines)} runs, with one row each; export the charts or the history of one",
            )
    runs = {name.partition(RUN_SEPARATOR)[0] for name in header if RUN_SEPARATOR in name}
    if len(runs) > 1:
        raise InvalidInput(str(path), f"holds {len(runs)} runs; export one: {', '.join(sorted(runs)[:4])}")
    metrics = (name.partition(RUN_SEPARATOR)[2] or name for name in header)
    rows = _rows(["" if name.endswith(EXTREMES) else column_name(name) for name in metrics], lines)
    yield from joined_metrics(rows) if is_long(lowered) else rows


def metric_of_file(path: Path) -> str:
    """Return the metric that the name of a file of one chart has."""
    return COPY.sub("", path.stem.rpartition(TAG)[2])


def _rows(names: Sequence[str], lines: Iterable[tuple[int, Sequence[str]]]) -> Iterator[LogItem]:
    for line, values in lines:
        if len(values) > len(names) and any(value.strip() for value in values[len(names) :]):
            yield LogDefect(line, f"has {len(values)} values; the header has {len(names)}")
            continue
        if row := row_of_cells(names, values):
            yield LogRow(row, line)


def row_of_cells(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return the metrics of the cells of a line, without those that were not logged."""
    given = zip(names, cells, strict=False)
    return {name: number_text(cell) for name, cell in given if name and logged(cell) is not None}


def column_name(text: str) -> str:
    """Return the metric that the header of a column names."""
    name = text.strip()
    return "step" if name.lower() == "step" else name


def is_metric_table(names: Sequence[str], values: Sequence[str]) -> bool:
    """Whether a table is one of metrics, from its header and its first line.

    Most cells are numbers, two at least, and it has a column of steps; without one, a known metric and numbers only.
    """
    cells = {column_name(name): number_text(value) for name, value in zip(names, values, strict=False)}
    given = {name: value for name, value in cells.items() if name and logged(value) is not None}
    n_numbers = sum(map(is_number, given.values()))
    found = translate(given)
    if found.step is not None or found.update is not None or any(name.lower() in STEP_COLUMNS for name in given):
        return n_numbers > 1 and 2 * n_numbers > len(given)
    return bool(found.signals) and n_numbers == len(given)


def is_long(names: Iterable[str]) -> bool:
    """Whether rows have one metric each, its name in one column and its value in another."""
    known = {name.lower() for name in names}
    return not known.isdisjoint(METRIC_COLUMNS) and not known.isdisjoint(VALUE_COLUMNS)


def joined_metrics(rows: Iterable[LogItem]) -> Iterator[LogItem]:
    """Yield a row a step of rows with one metric each, sorted by steps unless a metric comes twice at a step."""
    joined: list[LogRow] = []
    newest: dict[Any, dict[str, Any]] = {}
    comes_twice = False
    for item in rows:
        if isinstance(item, LogDefect):
            yield item
            continue
        name, value = _cell(item.values, METRIC_COLUMNS), _cell(item.values, VALUE_COLUMNS)
        step, time = _cell(item.values, STEP_COLUMNS), _cell(item.values, TIME_COLUMNS)
        row = newest.get(step)
        if row is None or step is None or str(name) in row:
            comes_twice = comes_twice or (row is not None and step is not None)
            row = newest[step] = ({} if step is None else {"step": step}) | ({} if time is None else {TIME: time})
            joined.append(LogRow(row, item.line))
        row[str(name)] = value
    yield from joined if comes_twice else sorted(joined, key=_step_number)


def _cell(values: Mapping[str, Any], columns: Iterable[str]) -> Any:
    lowered = {name.lower(): value for name, value in values.items()}
    return next((lowered[name] for name in columns if name in lowered), None)


def _step_number(row: LogRow) -> float:
    step = row.values.get("step")
    return float(step) if step is not None and is_number(str(step)) else 0.0
