"""The steps of a log as a trainer would have sent them: scalars under trmon's names, in attempts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from itertools import chain, islice
from typing import Any, TypeAlias

from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import UNKNOWN_NAME, Translation, number_of, recognise, translate
from trmon_client.core.wire import MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class LogRow:
    """The metrics of a row under the framework's names, with its step and its time if the log states them.

    `line` is where the row begins, from 1; 0 in a format without lines. `writer` names what wrote the row, such as a
    file that one process writes; empty if the log does not say. `bar` is the count of the writer's newest progress bar,
    which may be older or newer than the row: consoles buffer rows and bars separately. A value None was not logged.
    """

    values: Mapping[str, Any]
    line: int = 0
    writer: str = ""
    bar: int | None = None


@dataclass(frozen=True, slots=True)
class LogDefect:
    """A place of a log that cannot be read, or not as it is written.

    `is_end` if the log was cut off there; `is_note` if all of it was read and only the way is worth a line.
    """

    line: int
    reason: str
    is_end: bool = False
    is_note: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


LogItems: TypeAlias = Iterable[LogRow | LogDefect]
RECOGNITION_ROWS = 200
"""How many of the first rows are read to recognise the framework."""
SUMMARY_OF_TRAINING = "train_runtime"
SUMMARY_NAMES = (SUMMARY_OF_TRAINING, "eval_runtime")
"""Names that occur only in rows that summarise a run or an evaluation, whose other names mean other numbers."""
EVALUATION = ("val", "eval", "test")
"""What names of evaluations begin with; they may be NaN where nothing was evaluated."""
TIME_NAMES = ("_timestamp", "timestamp", "wall_time", "time")
"""The names of the time of a row, in seconds or milliseconds since 1970 or in ISO 8601."""
TIME = "_timestamp"
"""The scalar of the time, in seconds since 1970; it is the name that wandb gives it."""
EPOCH = "epoch"
RUNNING_TOTALS = (EPOCH, "num_tokens", "num_input_tokens_seen", "total_flos", TIME)
"""Names that every row of a step may repeat."""
YEAR_2000, YEAR_2100 = 946_684_800.0, 4_102_444_800.0
MAX_RESTARTS = 32
"""Steps that go back more often are those of several processes in one file."""


class StepSource(Enum):
    """Where the step of a row comes from; one source for a whole log."""

    STATED = "stated"
    BARS = "progress bars"
    ROWS = "rows"
    """Rows are counted: most state no step, and the progress bars do not advance between rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurvey:
    """The outcome of a first reading of a log: the names of its metrics, and how it counts steps.

    `mapped` has the names that the user mapped to signals; `updates_per_step` is 1 unless rows name the count of
    updates instead. `is_in_order` unless a row follows one of a later step of its attempt.
    """

    table: MetricTable | None
    mapped: Mapping[str, str] = field(default_factory=dict)
    n_rows: int
    step_source: StepSource
    updates_per_step: int
    is_in_order: bool = True

    @property
    def framework(self) -> str | None:
        """The framework whose metric names the log has."""
        return self.table.framework if self.table else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """A row of a log at its step; `attempt` counts from 0 how often the trainer went back in steps before it.

    `logged_at` is in seconds since 1970, 0 if the log does not say; `writer` is that of the row. `replaces` if signals
    of the row were logged before at the same step of the attempt.
    """

    attempt: int
    step: int
    metrics: Translation
    scalars: Mapping[str, float]
    logged_at: float
    line: int
    writer: str = ""
    replaces: bool = False


def survey_log(items: LogItems, *, source: str, mapped: Mapping[str, str] | None = None) -> LogSurvey:
    """Return the outcome of a first reading of a log.

    Args: source: what to call the log in errors; mapped: names that mean a signal by the user's word.
    Errors: InvalidInput if it has no row, or several processes wrote it.
    """
    mapped = mapped or {}
    rows = (item for item in items if isinstance(item, LogRow))
    first = list(islice(rows, RECOGNITION_ROWS))
    if not first:
        raise InvalidInput(source, "has no row of metrics")
    table = recognise(dict.fromkeys(name for row in first for name in row.values))
    progress, counting, back = _Progress(), _Counting(), []
    steps = updates = newest = -1
    n_rows, is_in_order = 0, True
    for row in chain(first, rows):
        n_rows += 1
        metrics = _translated(row, table, mapped, time_name=_time(row.values)[0])
        counted = _stated(metrics)
        counting.add(row, metrics)
        if counted is None:
            continue
        if metrics.update is None:
            steps = max(steps, counted)
        else:
            updates = max(updates, counted)
        if not is_summary(row.values) and progress.goes_back(counted, _logged(metrics)):
            back.append(row.line)
            newest = -1
        is_in_order = is_in_order and counted >= newest
        newest = max(newest, counted)
    is_stated = counting.source is StepSource.STATED
    if is_stated and len(back) > MAX_RESTARTS:
        shown = ", ".join(map(str, back[:5]))
        raise InvalidInput(
            source, f"goes back in steps {len(back)} times (lines {shown}, ...); import one process each"
        )
    return LogSurvey(
        table=table,
        mapped=mapped,
        n_rows=n_rows,
        step_source=counting.source,
        updates_per_step=updates_per_step(updates, last_step=steps),
        is_in_order=not is_stated or (is_in_order and (steps < 0 or updates < 0)),
    )


def logged_steps(items: LogItems, survey: LogSurvey) -> Iterator[LoggedStep | LogDefect]:
    """Yield the rows of a log with their steps, and the defects of what is not in them or not as it is written."""
    reader = _StepReader(survey)
    for item in items:
        if isinstance(item, LogDefect):
            yield item
        else:
            yield from reader.read(item)


@dataclass(slots=True)
class LogTally:
    """What has been read of a log: its steps, the names that signals were read from, and what was not understood.

    `n_replaced` rows repeat signals of their step; `names` are the names that the signals were read from, `unknown` the
    names of numbers that no table knows, `left_out` the other names with the reason.
    """

    survey: LogSurvey
    steps: set[tuple[int, int]] = field(default_factory=set)
    n_replaced: int = 0
    names: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    defects: list[LogDefect] = field(default_factory=list)

    def add(self, item: LoggedStep | LogDefect) -> None:
        """Add a row, or a defect."""
        if isinstance(item, LogDefect):
            self.defects.append(item)
            return
        self.steps.add((item.attempt, item.step))
        self.n_replaced += item.replaces
        for signal, name in item.metrics.names.items():
            self.names.setdefault(signal, name)
        for ignored in item.metrics.ignored:
            if ignored.name in (self.survey.table.step_seconds if self.survey.table else ()):
                continue
            if ignored.name not in item.metrics.others:
                self.left_out.setdefault(ignored.name, "not a number")
            elif ignored.why == UNKNOWN_NAME:
                self.unknown.setdefault(ignored.name)
            else:
                self.left_out.setdefault(ignored.name, ignored.why)

    @property
    def n_attempts(self) -> int:
        """How many times the trainer started."""
        return len({attempt for attempt, _ in self.steps})

    @property
    def is_whole(self) -> bool:
        """Whether all of the log was read as it is written."""
        return all(defect.is_note for defect in self.defects)


def is_summary(row: Mapping[str, Any]) -> bool:
    """Whether a row sums up a run or an evaluation."""
    return any(name in row for name in SUMMARY_NAMES)


def updates_per_step(last_update: int, *, last_step: int) -> int:
    """Return how many updates a step of a log has, from the last of each, which count from 0; -1 is none."""
    return max(1, round((last_update + 1) / (last_step + 1))) if last_step >= 0 else 1


@dataclass(slots=True)
class _Progress:
    """The newest step of each metric since the trainer last went back.

    A row of other metrics may be of an older step, as those of a rollout that is logged before its update.
    """

    newest: dict[str, int] = field(default_factory=dict)

    def repeats(self, step: int, names: Iterable[str]) -> bool:
        """Whether one of the names was logged at this step before; ask before the row is added."""
        return any(self.newest.get(name) == step for name in names)

    def goes_back(self, step: int, names: Sequence[str]) -> bool:
        """Add a row, and return whether all its known metrics were logged at later steps."""
        known = [self.newest[name] for name in names if name in self.newest]
        is_back = bool(known) and min(known) > step
        if is_back:
            self.newest.clear()
        self.newest.update((name, max(step, self.newest.get(name, step))) for name in names)
        return is_back


@dataclass(slots=True)
class _Bars:
    """Whether progress bars may count steps: each row has one, which advances before any of its metrics comes again."""

    advance: bool = True
    newest: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, row: LogRow, names: Iterable[str]) -> None:
        for name in names:
            self.advance = self.advance and row.bar is not None and self.newest.get((row.writer, name)) != row.bar
            self.newest[row.writer, name] = row.bar or 0


@dataclass(slots=True)
class _Counting:
    """How the rows of a log count their steps; rows without a known metric have a say only where no row has one.

    One line that names a step, such as a printed configuration or a summary, does not speak for hundreds that do not.
    """

    is_known: bool = False
    n_stated: int = 0
    n_silent: int = 0
    bars: _Bars = field(default_factory=_Bars)

    def add(self, row: LogRow, metrics: Translation) -> None:
        if metrics.signals and not self.is_known:
            self.is_known, self.n_stated, self.n_silent, self.bars = True, 0, 0, _Bars()
        if self.is_known and not metrics.signals:
            return
        if _stated(metrics) is not None:
            self.n_stated += 1
        else:
            self.n_silent += 1
            self.bars.add(row, _logged(metrics))

    @property
    def source(self) -> StepSource:
        if self.n_stated >= self.n_silent:
            return StepSource.STATED
        return StepSource.BARS if self.bars.advance else StepSource.ROWS


@dataclass(slots=True)
class _RowCount:
    """Counts the steps of rows that state none: a metric that comes again, or another epoch, begins a step."""

    names: set[str] = field(default_factory=set)
    epochs: list[float] = field(default_factory=list)
    """The epoch of each step, 0 until a row has one."""

    def step_of(self, names: Iterable[str], epoch: float) -> int:
        """Return the step of a row, from 1; it goes back where the epoch does. Args: epoch: nan if the row has none."""
        names = set(names)
        former = self.epochs[-1] if self.epochs else 0.0
        epoch = former if math.isnan(epoch) else epoch
        if epoch < former:
            del self.epochs[bisect_left(self.epochs, epoch) :]
        if epoch != former or not self.epochs or not names.isdisjoint(self.names):
            self.names = names
            self.epochs.append(epoch)
        else:
            self.names |= names
        return len(self.epochs)


@dataclass(slots=True)
class _StepReader:
    survey: LogSurvey
    progress: _Progress = field(default_factory=_Progress)
    counted: _RowCount = field(default_factory=_RowCount)
    attempt: int = 0
    named: set[str] = field(default_factory=set)

    def read(self, row: LogRow) -> Iterator[LoggedStep | LogDefect]:
        time_name, logged_at = _time(row.values)
        metrics = _translated(row, self.survey.table, self.survey.mapped, time_name=time_name)
        yield from self._defects(row, metrics)
        step = self._step(row, metrics)
        if step is None or step < 0:
            stated = _stated(metrics)
            where = "" if self.survey.step_source is StepSource.STATED or stated is None else ", and most rows none"
            reason = "states no step; left out" if stated is None else f"states step {stated}{where}; left out"
            # The summary of a training belongs to no step.
            yield LogDefect(row.line, reason, is_note=step is None and SUMMARY_OF_TRAINING in row.values)
            return
        replaces = False
        if is_summary(row.values):
            evaluated = {signal: name for signal, name in metrics.names.items() if name.startswith(EVALUATION)}
            if lost := sorted(metrics.signals.keys() - evaluated.keys()):
                yield LogDefect(row.line, f"sums up several steps; left out: {', '.join(lost)}", is_note=True)
            signals = {signal: metrics.signals[signal] for signal in evaluated}
            metrics = replace(metrics, signals=signals, names=evaluated, nonfinite=(), ignored=())
        else:
            replaces = self.progress.repeats(step, metrics.signals)
            if self.progress.goes_back(step, _logged(metrics)):
                self.attempt += 1
                yield LogDefect(row.line, f"goes back to step {step}; read as another attempt", is_note=True)
        scalars = {name: value for name, value in {**metrics.others, **metrics.signals}.items() if _is_name(name)}
        if scalars:
            if logged_at:
                scalars[TIME] = logged_at
            yield LoggedStep(
                attempt=self.attempt,
                step=step,
                metrics=metrics,
                scalars=scalars,
                logged_at=logged_at,
                line=row.line,
                writer=row.writer,
                replaces=replaces,
            )

    def _step(self, row: LogRow, metrics: Translation) -> int | None:
        if self.survey.step_source is not StepSource.STATED and _stated(metrics) is not None:
            return None
        match self.survey.step_source:
            case StepSource.STATED:
                return metrics.step if metrics.update is None else metrics.update // self.survey.updates_per_step
            case StepSource.BARS:
                return row.bar
            case StepSource.ROWS:
                if is_summary(row.values) and self.counted.epochs:
                    return len(self.counted.epochs)
                epoch = number_of(row.values.get(EPOCH))
                return self.counted.step_of(_logged(metrics), math.nan if epoch is None else epoch)

    def _defects(self, row: LogRow, metrics: Translation) -> Iterator[LogDefect]:
        """Yield what cannot be kept as it is written; texts are notes, each name once, where it is first."""
        for name, value in row.values.items():
            number = number_of(value)
            if number is not None and isinstance(value, str) and math.isinf(number) and any(map(str.isdigit, value)):
                yield LogDefect(row.line, f"{name}: {_shown(value)} is too large for a float64; kept as {number}")
        for item in metrics.ignored:
            if item.name in metrics.others or item.name in self.named:
                continue
            self.named.add(item.name)
            shown = _shown(row.values[item.name])
            yield LogDefect(row.line, f"{item.name}: {shown} is not a number; left out", is_note=True)
        for name in metrics.others:
            if not _is_name(name) and name not in self.named:
                self.named.add(name)
                yield LogDefect(
                    row.line, f"{_shown(name)} is not a name of 1 to {MAX_NAME_LENGTH} printable characters; left out"
                )


def _translated(
    row: LogRow, table: MetricTable | None, mapped: Mapping[str, str], *, time_name: str | None
) -> Translation:
    """Return a row under trmon's names, without its time and what it has not logged."""
    given = {name: value for name, value in row.values.items() if value is not None and name != time_name}
    return translate(given, table=table, mapped=mapped)


def _stated(metrics: Translation) -> int | None:
    """Return the update or the step that a row states."""
    return metrics.step if metrics.update is None else metrics.update


def _logged(metrics: Translation) -> list[str]:
    """Return the names of a row by which its order is known."""
    return [name for name in (*metrics.signals, *metrics.others) if name not in RUNNING_TOTALS]


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _time(values: Mapping[str, Any]) -> tuple[str | None, float]:
    """Return the name of the time of a row, and the time in seconds since 1970; None and 0 if it has none."""
    for name in TIME_NAMES:
        if name in values:
            seconds = _seconds_since_1970(values[name])
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
