"""A run as its trainer's log has it: the lines of the log under trmon's names, one step after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from trmon.domain.analysis.logged_steps import EVALUATION, LoggedStep, LogItems, LogSurvey, LogTally, logged_steps
from trmon.domain.diagnosis.conditions import TRUE
from trmon.domain.diagnosis.criteria import Thresholds, finding_conditions
from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.features import with_features
from trmon.domain.diagnosis.history import History
from trmon.domain.errors import InvalidInput
from trmon.domain.finding import CAUSES, Finding
from trmon.domain.framework_names.translation import FRAMEWORKS, SCALARS, Translation
from trmon.domain.signals.run_features import RunFeatures
from trmon.domain.signals.windows import Baseline, SignalWindow, is_number

ALWAYS_A_FINDING = "loss"
"""The scalar under which a known name of a framework counts, as it is a number in every working step."""


@dataclass(slots=True)
class NonFiniteNames:
    """`known` has the first step of each known name; other names count once they have been finite."""

    known: dict[str, int] = field(default_factory=dict)
    _steps: set[int] = field(default_factory=set)
    _others: dict[int, list[str]] = field(default_factory=dict)
    _first_finite: dict[str, int] = field(default_factory=dict)

    def add(self, line: Translation, *, step: int) -> None:
        """Add the names of a line."""
        for name in line.nonfinite:
            self.known.setdefault(name, step)
        if line.nonfinite:
            self._steps.add(step)
        for name, value in line.others.items():
            if is_number(value):
                self._first_finite.setdefault(name, step)
            elif name not in line.nonfinite and not name.startswith(EVALUATION):
                self._others.setdefault(step, []).append(name)

    def leave_out(self, step: int) -> None:
        """Forget a step but for the known names that were not finite in it."""
        self._steps.discard(step)
        self._others.pop(step, None)

    def scalars_by_step(self) -> Mapping[int, dict[str, float]]:
        """Return scalars of the steps with such values: NaN where one is, 0 where a name was first finite."""
        found: dict[int, dict[str, float]] = {step: {ALWAYS_A_FINDING: math.nan} for step in self._steps}
        for name in {name for names in self._others.values() for name in names}:
            if name in self._first_finite:
                found.setdefault(self._first_finite[name], {})[name] = 0.0
        for step, names in self._others.items():
            found.setdefault(step, {}).update(dict.fromkeys(names, math.nan))
        return found


Array: TypeAlias = Any
ESS_SEQ = ("total_ess_seq", "mismatch_ess_seq", "staleness_ess_seq")
"""Of the primary pair."""
SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The signals of a log by step, and what was read of it; a step counts as the last start of the trainer logged it.

    `seconds` [n] are the durations of the steps, NaN where they are not known; `nonfinite` has the first step of each
    name with NaN or infinity.
    """

    history: History
    tally: LogTally
    seconds: Array
    nonfinite: Mapping[str, int] = field(default_factory=dict)

    @property
    def compares_engines(self) -> bool:
        """Whether the log has any signal of how far the engines agree."""
        return any(name.startswith(("mismatch_", "total_")) for name in self.history.values)


@dataclass(slots=True)
class _Builder:
    """Collects the rows of the steps; a later row of a step replaces the signals that it has."""

    signals: dict[int, dict[str, float]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    nonfinite: NonFiniteNames = field(default_factory=NonFiniteNames)
    attempt: int = 0

    def add(self, row: LoggedStep) -> None:
        """Add a row; one without any known name is no step of the run."""
        if row.attempt != self.attempt:
            self._restart(row.attempt, row.step)
        if not row.metrics.signals:
            return
        self.signals.setdefault(row.step, {}).update(row.metrics.signals)
        self.nonfinite.add(row.metrics, step=row.step)
        if not math.isnan(row.metrics.step_seconds):
            self.seconds[row.step] = row.metrics.step_seconds

    def _restart(self, attempt: int, step: int) -> None:
        """Leave out the steps that the trainer goes through again."""
        self.attempt = attempt
        for again in [known for known in self.signals if known >= step]:
            del self.signals[again]
            self.seconds.pop(again, None)
            self.nonfinite.leave_out(again)


def read_logged_run(items: LogItems, survey: LogSurvey, *, source: str) -> LoggedRun:
    """Return the run in a log.

    Args: source: what to call the log in errors. Errors: InvalidInput if no name of any row is known.
    """
    builder, tally = _Builder(), LogTally(survey)
    for item in logged_steps(items, survey):
        tally.add(item)
        if isinstance(item, LoggedStep):
            builder.add(item)
    if not builder.signals:
        raise InvalidInput(source, _nothing_known(tally))
    steps = sorted(builder.signals)
    return LoggedRun(
        history=_history(steps, builder),
        tally=tally,
        seconds=np.array([builder.seconds.get(step, math.nan) for step in steps]),
        nonfinite=builder.nonfinite.known,
    )


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


def _nothing_known(tally: LogTally) -> str:
    found = ", ".join(islice((*tally.unknown, *tally.left_out), SHOWN_NAMES))
    return f"has no metric with a known name; it has: {found or 'no metrics'}. {known_names()}"


def known_names() -> str:
    """Return a sentence that says which names are read."""
    frameworks = ", ".join(table.framework for table in FRAMEWORKS)
    return f"Known are trmon's names (kl_k3, reward_mean, entropy, grad_norm, ...) and those of {frameworks}"


SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The cost of a run, NaN where it is not known.

    `wasted_rollouts` is the share of groups whose answers all had the same reward, which have no advantage; hours are
    GPU-hours: `gpu_hours` of all steps whose duration is known, `wasted_gpu_hours` their part in wasted rollouts,
    `ill_gpu_hours` those since the run broke. `timed_steps` is the share of steps whose duration is known.
    """

    wasted_rollouts: float
    timed_steps: float
    gpu_hours: float
    wasted_gpu_hours: float
    ill_gpu_hours: float


def run_cost(run: LoggedRun, *, broke_at: int | None, gpus: int | None) -> RunCost:
    """Return the cost of a run.

    Args: broke_at: the step at which it broke; gpus: how many it uses, None if not known, which leaves hours unknown.
    """
    wasted = run.history.values.get("zero_variance_groups", np.full(len(run.history), math.nan))
    hours = run.seconds * (math.nan if gpus is None else gpus / SECONDS_PER_HOUR)
    both = ~np.isnan(wasted) & ~np.isnan(hours)
    ill = np.zeros(len(hours), bool) if broke_at is None else np.asarray(run.history.steps) >= broke_at
    return RunCost(
        wasted_rollouts=float(np.nanmean(wasted)) if not np.isnan(wasted).all() else math.nan,
        timed_steps=float(np.mean(~np.isnan(run.seconds))),
        gpu_hours=_sum(hours),
        wasted_gpu_hours=float((wasted * hours)[both].sum()) if both.any() else math.nan,
        ill_gpu_hours=_sum(hours[ill]) if broke_at is not None else math.nan,
    )


def _sum(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else math.nan


WINDOW_STEPS = 256
"""The steps that a diagnosis reads, as in the service."""
STRIDE_STEPS = 128
BRIDGED_STEPS = 20
"""A finding that is absent for fewer steps than this is one episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSpan:
    """Consecutive steps in which a finding held; `stands` if it still held at the last step of the log."""

    finding: Finding
    first_step: int
    last_step: int
    stands: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The findings over the steps of a run, oldest first, and the diagnosis at its end.

    `broke_at` is the earliest step at which the chain of findings began that still stands at the end, None without one;
    `last_good_step` is the step before it, None if the run was ill from its first step.
    """

    diagnosis: Diagnosis
    spans: tuple[FindingSpan, ...]
    broke_at: int | None
    last_good_step: int | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that held at some step, in the order in which they began."""
        return tuple(dict.fromkeys(span.finding for span in self.spans))


def course_of(history: History, *, limits: Thresholds | None = None) -> Course:
    """Return the course of a run from its whole history. Source: formulas, section 10 (where it broke)."""
    limits = limits or Thresholds()
    steps = [int(step) for step in history.steps]
    spans = sorted(_all_spans(history, limits), key=lambda span: (span.first_step, CAUSES.index(span.finding)))
    broke_at = _chain_start(spans)
    before = [step for step in steps if broke_at is not None and step < broke_at]
    return Course(
        diagnosis=diagnose(_rows(history, slice(-WINDOW_STEPS, None)), limits=limits),
        spans=tuple(spans),
        broke_at=broke_at,
        last_good_step=before[-1] if before else None,
    )


def _all_spans(history: History, limits: Thresholds) -> Iterator[FindingSpan]:
    for finding, holds in _truths(history, limits).items():
        yield from _spans(finding, holds, history.steps)


def _truths(history: History, limits: Thresholds) -> Mapping[Finding, Array]:
    """Return whether each finding holds at each step, [n], read in overlapping windows as long as the service's."""
    conditions = finding_conditions(limits)
    holds = {finding: np.zeros(len(history), bool) for finding in conditions}
    for begin in range(0, len(history), STRIDE_STEPS):
        lead_in = max(0, begin + STRIDE_STEPS - WINDOW_STEPS)
        window = with_features(_rows(history, slice(lead_in, begin + STRIDE_STEPS)))
        for finding, condition in conditions.items():
            truths = condition.read(window).truths[begin - lead_in :]
            holds[finding][begin : begin + len(truths)] = truths == TRUE
    return holds


def _rows(history: History, rows: slice) -> History:
    return History(history.steps[rows], {name: column[rows] for name, column in history.values.items()})


def _spans(finding: Finding, holds: Array, steps: Array) -> Iterator[FindingSpan]:
    at = np.flatnonzero(holds)
    if not len(at):
        return
    for run in np.split(at, np.flatnonzero(np.diff(at) > BRIDGED_STEPS) + 1):
        yield FindingSpan(
            finding=finding,
            first_step=int(steps[run[0]]),
            last_step=int(steps[run[-1]]),
            stands=bool(run[-1] == len(steps) - 1),
        )


def _chain_start(spans: Sequence[FindingSpan]) -> int | None:
    """Return the first step of the chain that stands: a finding joins it if it held when the chain began."""
    standing = [span.first_step for span in spans if span.stands]
    if not standing:
        return None
    start = min(standing)
    for span in sorted(spans, key=lambda span: span.last_step, reverse=True):
        if span.last_step >= start - 1:
            start = min(start, span.first_step)
    return start
