"""The steps of a log as a trainer would have sent them: scalars under trmon's names, in attempts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Any, TypeAlias

from trmon.domain.analysis.logged_run import RECOGNITION_ROWS, is_summary, updates_per_step
from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import Translation, number_of, recognise, translate
from trmon_client.core.wire import MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class LogRow:
    """The metrics of a row under the framework's names, with its step and its time if the log states them.

    `line` is where the row begins, from 1; 0 in a format without lines. `writer` names what wrote the row, such as a
    file that one process writes; empty if the log does not say. `bar` is the count of the writer's newest progress bar,
    which may be older or newer than the row: consoles buffer rows and bars separately.
    """

    values: Mapping[str, Any]
    line: int = 0
    writer: str = ""
    bar: int | None = None


@dataclass(frozen=True, slots=True)
class LogDefect:
    """A place of a log that cannot be read, or not as it is written; `is_end` if the log was cut off there."""

    line: int
    reason: str
    is_end: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


LogItems: TypeAlias = Iterable[LogRow | LogDefect]
TIME_NAMES = ("_timestamp", "timestamp", "wall_time", "time")
"""The names of the time of a row, in seconds or milliseconds since 1970 or in ISO 8601."""
TIME = "_timestamp"
"""The scalar of the time, in seconds since 1970; it is the name that wandb gives it."""
YEAR_2000, YEAR_2100 = 946_684_800.0, 4_102_444_800.0
MAX_RESTARTS = 32
"""Steps that go back more often are those of several processes in one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurvey:
    """What a first reading of a log tells: the names of its metrics, and how it counts steps.

    `names_steps` is false if no row names its step, so that rows are counted; `updates_per_step` is 1 unless rows name
    the count of updates instead.
    """

    table: MetricTable | None
    n_rows: int
    names_steps: bool
    updates_per_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """The scalars of a row; `attempt` counts from 0 how often the trainer went back in steps before it.

    `logged_at` is in seconds since 1970, 0 if the log does not tell; `writer` is that of the row.
    """

    attempt: int
    step: int
    scalars: Mapping[str, float]
    logged_at: float
    line: int
    writer: str = ""


def survey_log(items: LogItems, *, source: str) -> LogSurvey:
    """Return what a first reading of a log tells.

    Args: source: what to call the log in errors.
    Errors: InvalidInput if it has no row, or several processes wrote it.
    """
    rows = (item for item in items if isinstance(item, LogRow))
    first = list(islice(rows, RECOGNITION_ROWS))
    if not first:
        raise InvalidInput(source, "has no row of metrics")
    table = recognise(dict.fromkeys(name for row in first for name in row.values))
    progress, back = _Progress(), []
    steps = updates = -1
    n_rows, names_steps = 0, False
    for row in chain(first, rows):
        n_rows += 1
        line = translate(row.values, table=table)
        counted = line.step if line.update is None else line.update
        if counted is None:
            continue
        names_steps = True
        if line.update is None:
            steps = max(steps, counted)
        else:
            updates = max(updates, counted)
        if not is_summary(row.values) and progress.goes_back(counted, _scalars(line)):
            back.append(row.line)
    if len(back) > MAX_RESTARTS:
        shown = ", ".join(map(str, back[:5]))
        raise InvalidInput(
            source, f"goes back in steps {len(back)} times (lines {shown}, ...); import one process each"
        )
    per_step = updates_per_step(updates, last_step=steps)
    return LogSurvey(table=table, n_rows=n_rows, names_steps=names_steps, updates_per_step=per_step)


def logged_steps(items: LogItems, survey: LogSurvey) -> Iterator[LoggedStep | LogDefect]:
    """Yield the steps of a log, and the defects of what is not in them or not as it is written."""
    reader = _StepReader(survey)
    for item in items:
        if isinstance(item, LogDefect):
            yield item
        else:
            yield from reader.read(item)


@dataclass(slots=True)
class _Progress:
    """The newest step of each metric since the trainer last went back.

    A row of other metrics may be of an older step, as those of a rollout that is logged before its update.
    """

    newest: dict[str, int] = field(default_factory=dict)

    def goes_back(self, step: int, scalars: Mapping[str, float]) -> bool:
        """Add a row; return whether all its known metrics were logged at later steps before."""
        names = [name for name in scalars if name != TIME]
        known = [self.newest[name] for name in names if name in self.newest]
        is_back = bool(known) and min(known) > step
        if is_back:
            self.newest.clear()
        self.newest.update((name, max(step, self.newest.get(name, step))) for name in names)
        return is_back


@dataclass(slots=True)
class _StepReader:
    survey: LogSurvey
    progress: _Progress = field(default_factory=_Progress)
    attempt: int = 0
    n_rows: int = 0
    named: set[str] = field(default_factory=set)

    def read(self, row: LogRow) -> Iterator[LoggedStep | LogDefect]:
        self.n_rows += 1
        time_name, logged_at = _time(row.values)
        line = translate(
            {name: value for name, value in row.values.items() if name != time_name}, table=self.survey.table
        )
        yield from self._defects(row, line)
        step = self._step(line)
        if step is None or step < 0:
            yield LogDefect(row.line, "states no step; left out" if step is None else f"states step {step}; left out")
            return
        scalars = {name: value for name, value in _scalars(line).items() if _is_name(name)}
        if is_summary(row.values):
            if line.signals:
                yield LogDefect(row.line, f"sums up several steps; left out: {', '.join(sorted(line.signals))}")
            scalars = {name: value for name, value in line.others.items() if _is_name(name)}
        elif self.progress.goes_back(step, scalars):
            self.attempt += 1
            yield LogDefect(row.line, f"goes back to step {step}; imported as another attempt")
        if scalars:
            if logged_at:
                scalars[TIME] = logged_at
            yield LoggedStep(
                attempt=self.attempt,
                step=step,
                scalars=scalars,
                logged_at=logged_at,
                line=row.line,
                writer=row.writer,
            )

    def _step(self, line: Translation) -> int | None:
        if not self.survey.names_steps:
            return self.n_rows
        return line.step if line.update is None else line.update // self.survey.updates_per_step

    def _defects(self, row: LogRow, line: Translation) -> Iterator[LogDefect]:
        """Yield what cannot be kept as it is written; a name that is never a number once, where it is first."""
        for name, value in row.values.items():
            number = number_of(value)
            if number is not None and isinstance(value, str) and math.isinf(number) and _has_digits(value):
                yield LogDefect(row.line, f"{name}: {_shown(value)} is too large for a float64; kept as {number}")
        for item in line.ignored:
            if item.name in line.others or item.name in self.named:
                continue
            self.named.add(item.name)
            yield LogDefect(row.line, f"{item.name}: {_shown(row.values[item.name])} is not a number; left out")
        for name in line.others:
            if not _is_name(name) and name not in self.named:
                self.named.add(name)
                yield LogDefect(
                    row.line, f"{_shown(name)} is not a name of 1 to {MAX_NAME_LENGTH} printable characters; left out"
                )


def _scalars(line: Translation) -> dict[str, float]:
    return {**line.others, **line.signals}


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()


def _has_digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _time(values: Mapping[str, Any]) -> tuple[str | None, float]:
    """Return the name of the time of a row, and the time in seconds since 1970; None and 0 if it has none."""
    for name in TIME_NAMES:
        seconds = _seconds_since_1970(values.get(name))
        if YEAR_2000 <= seconds <= YEAR_2100:
            return name, seconds
    return None, 0.0


def _seconds_since_1970(value: Any) -> float:
    number = number_of(value)
    if number is not None:
        return number / 1000.0 if number > YEAR_2100 else number
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return math.nan
