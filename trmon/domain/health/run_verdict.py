"""The verdict on a run: its urgency, the reason, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.diagnosis import REMEDIES, Diagnosis, Finding
from trmon.domain.diagnosis.observation import Observation
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

REVIEW_SECONDS = 86_400.0
"""How long a run with a finding still has the verdict `watch` after its end."""
STATE_RULES = frozenset({"stalled", "crashed"})
"""The built-in rules that only repeat the state of the run."""
DUPLICATE_TRAINERS_RULE = "two_trainers"
"""The built-in rule that is named before any finding, since findings may mix two trainers."""
QUARANTINE_RULE = "batch_quarantined"
"""The built-in rule that is named right after the cause, since quarantined parts have no findings."""


class Urgency(Enum):
    """How soon to investigate."""

    NOW = "now"
    SOON = "soon"
    NONE = "none"


class VerdictKind(Enum):
    """The kinds of verdicts, most urgent first."""

    ACT = "act"
    CRASHED = "crashed"
    STALLED = "stalled"
    WATCH = "watch"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    FINISHED = "finished"

    @property
    def urgency(self) -> Urgency:
        """How soon to investigate a run with this verdict."""
        if self in (VerdictKind.ACT, VerdictKind.CRASHED, VerdictKind.STALLED):
            return Urgency.NOW
        return Urgency.SOON if self is VerdictKind.WATCH else Urgency.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The verdict on a run, and the reason in a phrase; `since_step` is the step at which it began, if known.

    `todo` is the first action in a sentence; None if no action is needed.
    """

    kind: VerdictKind
    why: str
    since_step: int | None = None
    todo: str | None = None

    @property
    def sentence(self) -> str:
        """The verdict in one line, e.g. `Act: staleness since step 63`."""
        return f"{self.kind.value.capitalize()}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInputs:
    """The inputs of a verdict: the alerts, the newest diagnosis, if there is one, and the usual step time."""

    run: Run
    alerts: Sequence[Alert] = ()
    diagnosis: Diagnosis | None = None
    expected_step_seconds: float | None = None


def judge_run(inputs: VerdictInputs, *, now: float) -> RunVerdict:
    """Return the verdict on a run.

    A firing page means `act`; a crashed or stalled trainer comes next; a firing warning or a finding means `watch`, for
    one day longer after the end of a run. Otherwise a run is healthy only if all findings are known.
    Args: now: seconds since the epoch.
    """
    run = inputs.run
    firing = [a for a in inputs.alerts if a.state is AlertState.FIRING and a.rule not in STATE_RULES]
    problems = _problems(firing, inputs.diagnosis)
    if any(alert.severity is Severity.PAGE for alert in firing):
        return _problem_verdict(VerdictKind.ACT, problems)
    if run.state in (RunState.CRASHED, RunState.STALLED):
        return _stopped(inputs, problems, now=now)
    if any(alert.severity is Severity.WARN for alert in firing):
        return _problem_verdict(VerdictKind.WATCH, problems)
    if run.state is RunState.FINISHED:
        return _finished(inputs, problems, now=now)
    return (
        _problem_verdict(VerdictKind.WATCH, problems) if _has_findings(inputs.diagnosis) else _without_problems(inputs)
    )


def urgency_of(verdict: RunVerdict, *, alerts: Sequence[Alert], acked: frozenset[str]) -> Urgency:
    """Return how soon to investigate a run; not at all once all firing alerts are acknowledged.

    Args: alerts: of the run; acked: the acknowledged episodes.
    """
    firing = [alert for alert in alerts if alert.state is AlertState.FIRING]
    all_acked = bool(firing) and all(alert.episode in acked for alert in firing)
    return Urgency.NONE if all_acked else verdict.kind.urgency


@dataclass(frozen=True, slots=True)
class _Problem:
    """One problem: its name, its first step, and what to do about it."""

    name: str
    since_step: int
    todo: str

    def __str__(self) -> str:
        return f"{self.name} since step {self.since_step}"


def _problems(firing: Sequence[Alert], diagnosis: Diagnosis | None) -> list[_Problem]:
    """Return the problems: duplicate trainers, then the findings, causes first, or without findings the alerts.

    Quarantined parts follow the first of them.
    """
    worst_first = sorted(firing, key=lambda alert: (list(Severity).index(alert.severity), alert.step))
    duplicates = [_of_alert(alert) for alert in worst_first if alert.rule == DUPLICATE_TRAINERS_RULE]
    quarantine = [_of_alert(alert) for alert in worst_first if alert.rule == QUARANTINE_RULE]
    found = [_of_finding(observation) for observation in diagnosis.observed] if diagnosis else []
    others = found or [
        _of_alert(alert) for alert in worst_first if alert.rule not in (DUPLICATE_TRAINERS_RULE, QUARANTINE_RULE)
    ]
    return duplicates + others[:1] + quarantine + others[1:]


def _of_alert(alert: Alert) -> _Problem:
    return _Problem(alert.rule.replace("_", " "), alert.step, alert.runbook)


def _of_finding(observation: Observation) -> _Problem:
    assert observation.since_step is not None
    return _Problem(observation.finding.title, observation.since_step, REMEDIES[observation.finding].fix)


def _has_findings(diagnosis: Diagnosis | None) -> bool:
    return diagnosis is not None and bool(diagnosis.observed)


def _problem_verdict(kind: VerdictKind, problems: Sequence[_Problem], *, ended: str = "") -> RunVerdict:
    """Return a verdict that names the cause and its first symptom, which is as much as a sentence can hold."""
    named = ", ".join([str(problems[0]), *(f"{problem.name} since {problem.since_step}" for problem in problems[1:2])])
    return RunVerdict(
        kind=kind, why=f"{named}{ended}", since_step=problems[0].since_step, todo=problems[0].todo or None
    )


def _stopped(inputs: VerdictInputs, problems: Sequence[_Problem], *, now: float) -> RunVerdict:
    run = inputs.run
    after = f"; before: {problems[0]}" if problems else ""
    since_step = problems[0].since_step if problems else run.last_step
    at = "" if run.last_step is None else f" at step {run.last_step}"
    todo = next((alert.runbook for alert in inputs.alerts if alert.rule == run.state.value), None)
    if run.state is RunState.CRASHED:
        why = f"the trainer ended with an error{at}{after}"
        return RunVerdict(kind=VerdictKind.CRASHED, why=why, since_step=since_step, todo=todo)
    silent = now - (run.created_at if run.last_report_at is None else run.last_report_at)
    expected = inputs.expected_step_seconds
    every = "" if expected is None else f", expected one every {duration(expected)}"
    why = f"no report for {duration(silent)}{every}{after}"
    return RunVerdict(kind=VerdictKind.STALLED, why=why, since_step=since_step, todo=todo)


def _finished(inputs: VerdictInputs, problems: Sequence[_Problem], *, now: float) -> RunVerdict:
    run = inputs.run
    recent = now - (run.last_report_at or run.created_at) < REVIEW_SECONDS
    at = "" if run.last_step is None else f" at step {run.last_step}"
    if inputs.diagnosis is None and run.last_step is not None and recent:
        return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"ended{at}, not diagnosed yet")
    if not problems:
        return RunVerdict(kind=VerdictKind.FINISHED, why=f"ended{at}, no finding" if inputs.diagnosis else f"ended{at}")
    if recent:
        return _problem_verdict(VerdictKind.WATCH, problems, ended=f"; ended{at}")
    return RunVerdict(kind=VerdictKind.FINISHED, why=f"ended{at} with {problems[0]}", since_step=problems[0].since_step)


def _without_problems(inputs: VerdictInputs) -> RunVerdict:
    diagnosis = inputs.diagnosis
    if diagnosis is None:
        none_yet = inputs.run.last_step is None
        return RunVerdict(kind=VerdictKind.UNKNOWN, why="no step has closed yet" if none_yet else "not diagnosed yet")
    if diagnosis.primary is Finding.HEALTHY:
        pause = ", paused" if inputs.run.state is RunState.PAUSED else ""
        return RunVerdict(kind=VerdictKind.HEALTHY, why=f"no finding in {_steps(diagnosis.steps)}{pause}")
    wanted = list(dict.fromkeys(gap.provide for gap in diagnosis.missing))
    # More steps are not an argument that the trainer forgot to pass.
    given = sorted((what for what in wanted if "steps" not in what), key=lambda what: not what.startswith("pass "))
    if given:
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"no finding; for a full diagnosis: {given[0]}{more}")
    if wanted:
        return RunVerdict(
            kind=VerdictKind.UNKNOWN,
            why=f"no finding in {_steps(diagnosis.steps)}; the full diagnosis needs more steps",
        )
    short = ", ".join(f"{item.signal} is {item.value:.3g}" for item in diagnosis.shortfall)
    return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"no finding, but {short or 'not all findings are known'}")


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


def duration(seconds: float) -> str:
    """Return a readable duration, e.g. `40 s`, `14 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{max(seconds, 0.0):.1g} s"
