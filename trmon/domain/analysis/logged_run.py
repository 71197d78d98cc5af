"""A run as its trainer's log has it: the lines of the log under trmon's names, one step after another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from trmon.domain.analysis.nonfinite_names import NonFiniteNames
from trmon.domain.diagnosis.history import History
from trmon.domain.framework_names import FRAMEWORKS, IgnoredName, MetricTable, Translation, recognise, translate
from trmon.domain.framework_names.translation import SCALARS
from trmon.domain.model.errors import InvalidInput
from trmon.domain.signals.run_features import RunFeatures
from trmon.domain.signals.windows import Baseline, SignalWindow

Array: TypeAlias = Any
RECOGNITION_ROWS = 200
"""How many of the first rows are read to recognise the framework."""
SUMMARY_NAMES = ("train_runtime", "eval_runtime")
"""Names that occur only in rows that summarise a run or an evaluation, whose other names mean other numbers."""
ESS_SEQ = ("total_ess_seq", "mismatch_ess_seq", "staleness_ess_seq")
"""Of the primary pair."""
SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The signals of a log by step, and what else the log tells.

    `table` has the names of the framework, None if the log has none of them.
    `names_steps` is false if no line names its step, so that lines are counted; `seconds` [n] are the durations of the
    steps, NaN where they are not known; `nonfinite` has the first step of each name with NaN or infinity.
    """

    history: History
    table: MetricTable | None
    n_rows: int
    names_steps: bool
    seconds: Array
    ignored: tuple[IgnoredName, ...] = ()
    nonfinite: Mapping[str, int] = field(default_factory=dict)

    @property
    def framework(self) -> str | None:
        """The framework whose names the log has."""
        return self.table.framework if self.table else None

    @property
    def compares_engines(self) -> bool:
        """Whether the log has any signal of how far the engines agree."""
        return any(name.startswith(("mismatch_", "total_")) for name in self.history.values)


@dataclass(slots=True)
class _Builder:
    """Collects rows; a later row of a step replaces the signals that it has, so a resumed run replaces its steps."""

    signals: dict[int, dict[str, float]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    ignored: dict[str, IgnoredName] = field(default_factory=dict)
    nonfinite: NonFiniteNames = field(default_factory=NonFiniteNames)
    updates: list[tuple[int, Translation]] = field(default_factory=list)
    is_framework: bool = False
    n_rows: int = 0
    names_steps: bool = False

    def add(self, line: Translation) -> None:
        """Add a row; rows without any known name carry no step of the run."""
        for item in line.ignored:
            self.ignored.setdefault(item.name, item)
        if not line.signals:
            return
        self.n_rows += 1
        self.names_steps = self.names_steps or line.step is not None or line.update is not None
        self.is_framework = self.is_framework or line.framework is not None
        if line.update is not None:
            self.updates.append((line.update, line))
        else:
            self._add_to(self.n_rows if line.step is None else line.step, line)

    def join_updates(self) -> None:
        """Add the updates to their steps, whose last update counts; all steps have equally many updates."""
        last_update = max((update for update, _ in self.updates), default=-1)
        per_step = updates_per_step(last_update, last_step=max(self.signals, default=-1))
        for update, line in sorted(self.updates, key=itemgetter(0)):
            self._add_to(update // per_step, line)

    def _add_to(self, step: int, line: Translation) -> None:
        self.signals.setdefault(step, {}).update(line.signals)
        self.nonfinite.add(line, step=step)
        if not math.isnan(line.step_seconds):
            self.seconds[step] = line.step_seconds


def read_logged_run(rows: Iterable[Mapping[str, Any]], *, source: str) -> LoggedRun:
    """Return the run in the rows of a log.

    Args: source: what to call the log in errors. Errors: InvalidInput if no name of any row is known.
    """
    iterator = (row for row in rows if not is_summary(row))
    first = list(islice(iterator, RECOGNITION_ROWS))
    names = dict.fromkeys(name for row in first for name in row)
    table = recognise(names)
    builder = _Builder()
    for row in chain(first, iterator):
        builder.add(translate(row, table=table))
    builder.join_updates()
    if not builder.signals:
        raise InvalidInput(source, _nothing_known(names))
    steps = sorted(builder.signals)
    return LoggedRun(
        history=_history(steps, builder),
        table=table if builder.is_framework else None,
        n_rows=builder.n_rows,
        names_steps=builder.names_steps,
        seconds=np.array([builder.seconds.get(step, math.nan) for step in steps]),
        ignored=tuple(builder.ignored.values()),
        nonfinite=builder.nonfinite.known,
    )


def is_summary(row: Mapping[str, Any]) -> bool:
    """Whether a row sums up a run or an evaluation."""
    return any(name in row for name in SUMMARY_NAMES)


def updates_per_step(last_update: int, *, last_step: int) -> int:
    """Return how many updates a step of a log has, from the last of each, which count from 0; -1 is none."""
    return max(1, round((last_update + 1) / (last_step + 1))) if last_step >= 0 else 1


def _history(steps: list[int], builder: _Builder) -> History:
    rows = list(_with_historical(steps, builder))
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
    return History(np.array(steps), values)


def _with_historical(steps: list[int], builder: _Builder) -> Iterator[dict[str, float]]:
    """Yield the signals of each step with those that the service derives from the history of a run."""
    lengths, ess, features = SignalWindow(), Baseline(), RunFeatures()
    nonfinite = builder.nonfinite.scalars_by_step()
    for step in steps:
        row = builder.signals[step]
        length, ess_seq = row.get("response_length_mean", math.nan), _ess_seq(row)
        lengths, ess = lengths.with_value(step, length), ess.with_value(step, ess_seq)
        scalars = {name: row[name] for name in SCALARS if name in row} | nonfinite.get(step, {})
        features = features.with_step(row, scalars=scalars)
        derived = features.signals() | {
            "response_length_growth": lengths.growth(),
            "ess_seq_relative": ess_seq / ess.value if ess.value else math.nan,
            # A log has one number for all updates of a step; it is at most the largest of the first ones.
            "staleness_kl_k3_early": row.get("staleness_kl_k3", math.nan),
        }
        yield {name: value for name, value in derived.items() if not math.isnan(value)} | row


def _ess_seq(row: Mapping[str, float]) -> float:
    known = (row[name] for name in ESS_SEQ if name in row)
    return next(known, math.nan)


def _nothing_known(names: Iterable[str]) -> str:
    found = ", ".join(islice(names, SHOWN_NAMES))
    return f"has no metric with a known name; it has: {found or 'no metrics'}. {known_names()}"


def known_names() -> str:
    """Return a sentence with examples of the names that are read."""
    examples = "; ".join(f"{table.framework}: {', '.join(_examples(table))}" for table in FRAMEWORKS)
    return f"Known are trmon's names (kl_k3, reward_mean, entropy, grad_norm, ...) and those of {examples}"


def _examples(table: MetricTable) -> Iterator[str]:
    return islice(table.signals, 2)
