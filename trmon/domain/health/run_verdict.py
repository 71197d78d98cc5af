"""The verdict on a run: whether it needs somebody, why, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.diagnosis import REMEDIES, Diagnosis, Finding
from trmon.domain.diagnosis.finding import Observation
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

REVIEW_SECONDS = 86_400.0
"""How long after its end a run in which a finding stood is still shown to be watched."""
OF_STATE = frozenset({"stalled", "crashed"})
"""The built-in rules that only repeat what the state says."""
OF_COMPANY = "two_trainers"
"""The built-in rule that is named before any finding: until it is settled, nobody knows of whom they are."""


OF_QUARANTINE = "batch_quarantined"
"""The built-in rule that is named right after the cause: no finding is made over what could not be judged."""


class Urgency(Enum):
    """How soon somebody should look."""

    NOW = "now"
    SOON = "soon"
    NONE = "none"


class VerdictKind(Enum):
    """What a run is judged to be, the most urgent first."""

    ACT = "act"
    CRASHED = "crashed"
    STALLED = "stalled"
    WATCH = "watch"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    FINISHED = "finished"

    @property
    def need(self) -> Urgency:
        """How soon somebody should look at such a run."""
        if self in (VerdictKind.ACT, VerdictKind.CRASHED, VerdictKind.STALLED):
            return Urgency.NOW
        return Urgency.SOON if self is VerdictKind.WATCH else Urgency.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What a run is judged to be, and why in a phrase; `since_step` is where it began, None where no step says so.

    `todo` is what to do about it first, in a sentence; None where nobody must do anything.
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
    """What a run is judged by: its alerts, its newest diagnosis, None before there is one, and its usual step time."""

    run: Run
    alerts: Sequence[Alert] = ()
    diagnosis: Diagnosis | None = None
    expected_step_seconds: float | None = None


def judge_run(standing: VerdictInputs, *, now: float) -> RunVerdict:
    """Return the verdict on a run.

    An open page asks to act; a trainer that crashed or fell silent comes next; an open warning or a standing finding
    asks to watch, in a run that ended for one day more. Without either, a run is healthy only if everything is known.
    Args: now: seconds since the epoch.
    """
    run = standing.run
    firing = [a for a in standing.alerts if a.state is AlertState.FIRING and a.rule not in OF_STATE]
    ills = _ills(firing, standing.diagnosis)
    if any(alert.severity is Severity.PAGE for alert in firing):
        return _ill(VerdictKind.ACT, ills)
    if run.state in (RunState.CRASHED, RunState.STALLED):
        return _gone(standing, ills, now=now)
    if any(alert.severity is Severity.WARN for alert in firing):
        return _ill(VerdictKind.WATCH, ills)
    if run.state is RunState.FINISHED:
        return _finished(standing, ills, now=now)
    return _ill(VerdictKind.WATCH, ills) if _is_ill(standing.diagnosis) else _well(standing)


def urgency_of(verdict: RunVerdict, *, alerts: Sequence[Alert], acked: frozenset[str]) -> Urgency:
    """Return how soon somebody should look, now that some episodes are taken up: what somebody has is not open.

    Args: alerts: the run's; acked: the episodes that somebody acknowledged.
    """
    firing = [alert for alert in alerts if alert.state is AlertState.FIRING]
    taken = bool(firing) and all(alert.episode in acked for alert in firing)
    return Urgency.NONE if taken else verdict.kind.need


@dataclass(frozen=True, slots=True)
class _Ill:
    """Something that is wrong: what, since which step, and what to do about it."""

    what: str
    since_step: int
    todo: str

    def __str__(self) -> str:
        return f"{self.what} since step {self.since_step}"


def _ills(firing: Sequence[Alert], diagnosis: Diagnosis | None) -> list[_Ill]:
    """Return what is wrong: a second trainer, then the findings with the cause first, else what the alerts say.

    What was set aside follows the first of them.
    """
    worst_first = sorted(firing, key=lambda alert: (list(Severity).index(alert.severity), alert.step))
    company = [_of_alert(alert) for alert in worst_first if alert.rule == OF_COMPANY]
    set_aside = [_of_alert(alert) for alert in worst_first if alert.rule == OF_QUARANTINE]
    found = [_of_finding(observation) for observation in diagnosis.observed] if diagnosis else []
    others = found or [_of_alert(alert) for alert in worst_first if alert.rule not in (OF_COMPANY, OF_QUARANTINE)]
    return company + others[:1] + set_aside + others[1:]


def _of_alert(alert: Alert) -> _Ill:
    return _Ill(alert.rule.replace("_", " "), alert.step, alert.runbook)


def _of_finding(observation: Observation) -> _Ill:
    assert observation.since_step is not None
    return _Ill(observation.finding.title, observation.since_step, REMEDIES[observation.finding].fix)


def _is_ill(diagnosis: Diagnosis | None) -> bool:
    return diagnosis is not None and bool(diagnosis.observed)


def _ill(kind: VerdictKind, ills: Sequence[_Ill], *, ended: str = "") -> RunVerdict:
    """Name the cause and the first of its symptoms; more than two make no sentence."""
    named = ", ".join([str(ills[0]), *(f"{ill.what} since {ill.since_step}" for ill in ills[1:2])])
    return RunVerdict(kind=kind, why=f"{named}{ended}", since_step=ills[0].since_step, todo=ills[0].todo or None)


def _gone(standing: VerdictInputs, ills: Sequence[_Ill], *, now: float) -> RunVerdict:
    run = standing.run
    after = f"; before: {ills[0]}" if ills else ""
    since_step = ills[0].since_step if ills else run.last_step
    at = "" if run.last_step is None else f" at step {run.last_step}"
    todo = next((alert.runbook for alert in standing.alerts if alert.rule == run.state.value), None)
    if run.state is RunState.CRASHED:
        why = f"the trainer ended with an error{at}{after}"
        return RunVerdict(kind=VerdictKind.CRASHED, why=why, since_step=since_step, todo=todo)
    silent = now - (run.created_at if run.last_report_at is None else run.last_report_at)
    expected = standing.expected_step_seconds
    every = "" if expected is None else f", expected one every {duration(expected)}"
    why = f"no report for {duration(silent)}{every}{after}"
    return RunVerdict(kind=VerdictKind.STALLED, why=why, since_step=since_step, todo=todo)


def _finished(standing: VerdictInputs, ills: Sequence[_Ill], *, now: float) -> RunVerdict:
    run, ill = standing.run, bool(ills)
    recent = now - (run.last_report_at or run.created_at) < REVIEW_SECONDS
    at = "" if run.last_step is None else f" at step {run.last_step}"
    if standing.diagnosis is None and run.last_step is not None and recent:
        return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"ended{at}, not diagnosed yet")
    if not ill:
        return RunVerdict(
            kind=VerdictKind.FINISHED, why=f"ended{at}, nothing found" if standing.diagnosis else f"ended{at}"
        )
    if recent:
        return _ill(VerdictKind.WATCH, ills, ended=f"; ended{at}")
    return RunVerdict(kind=VerdictKind.FINISHED, why=f"ended{at}, ill: {ills[0]}", since_step=ills[0].since_step)


def _well(standing: VerdictInputs) -> RunVerdict:
    diagnosis = standing.diagnosis
    if diagnosis is None:
        none_yet = standing.run.last_step is None
        return RunVerdict(kind=VerdictKind.UNKNOWN, why="no step has closed yet" if none_yet else "not diagnosed yet")
    if diagnosis.primary is Finding.HEALTHY:
        pause = ", paused" if standing.run.state is RunState.PAUSED else ""
        return RunVerdict(kind=VerdictKind.HEALTHY, why=f"nothing found in {_steps(diagnosis.steps)}{pause}")
    wanted = list(dict.fromkeys(gap.provide for gap in diagnosis.missing))
    # What only time gives is no argument that somebody forgot.
    given = sorted((what for what in wanted if "steps" not in what), key=lambda what: not what.startswith("pass "))
    if given:
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"nothing found; to be sure: {given[0]}{more}")
    if wanted:
        return RunVerdict(
            kind=VerdictKind.UNKNOWN, why=f"nothing found in {_steps(diagnosis.steps)}; more steps will tell the rest"
        )
    short = ", ".join(f"{item.signal} is {item.value:.3g}" for item in diagnosis.shortfall)
    return RunVerdict(kind=VerdictKind.UNKNOWN, why=f"nothing found, but {short or 'not everything is known'}")


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


def duration(seconds: float) -> str:
    """Return a time span for people, e.g. `40 s`, `14 min`, `3 h`, `2 d`; at least in its largest whole unit."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{max(seconds, 0.0):.1g} s"
