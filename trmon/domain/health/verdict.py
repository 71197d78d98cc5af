"""Judging runs: what is known of a run to the verdict on it, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.diagnosis.diagnosis import Assurance, Diagnosis, Measurement
from trmon.domain.diagnosis.remedies import for_next_run
from trmon.domain.severity import Severity
from trmon.domain.health.judgement import RunVerdict, Urgency, VerdictKind, duration
from trmon.domain.health.problems import RunProblem, problems_of, symptoms_in_words
from trmon.domain.incidents.incident import Incident
from trmon.domain.runs.run import Run, RunState

REVIEW_SECONDS = 86_400.0
"""How long a run that ended ill is still to be investigated after its end."""
SHORTEST_TOLD_SECONDS = 0.1
"""The shortest usual step that the verdict on a stalled run states; shorter ones are of tests and replays."""
STATE_RULES = frozenset({"stalled", "crashed"})
"""The built-in rules that only repeat the state of the run."""
MAX_ERROR_LENGTH = 120
KINDS = {
    Assurance.HEALTHY: VerdictKind.HEALTHY,
    Assurance.NO_DRIFT_FOUND: VerdictKind.NO_DRIFT_FOUND,
    Assurance.TRAINING_HEALTHY: VerdictKind.TRAINING_HEALTHY,
    Assurance.UNKNOWN: VerdictKind.UNKNOWN,
}
MAX_MEASUREMENTS = 3


def assurance_words(diagnosis: Diagnosis) -> str:
    """Return why a run without problems has its verdict."""
    steps = step_count(diagnosis.steps)
    match diagnosis.assurance:
        case Assurance.HEALTHY:
            return f"no finding in {steps}"
        case Assurance.NO_DRIFT_FOUND:
            so_far = " so far" if diagnosis.needs_more_steps else ""
            return f"{_values(diagnosis.agreement)} in {steps}{so_far}{_not_measured(diagnosis)}"
        case Assurance.TRAINING_HEALTHY:
            return f"agreement not measured{_how_to_measure(diagnosis)}; {_values(diagnosis.training)} in {steps}"
        case _ if diagnosis.shortfall:
            return f"no finding, but {', '.join(f'{item.signal} is {item.value:.3g}' for item in diagnosis.shortfall)}"
        case _:
            return (
                f"no agreement of log-probs, reward, entropy, length or grad_norm is known{_how_to_measure(diagnosis)}"
            )


def step_count(n: int) -> str:
    """Return a number of steps in words."""
    return f"{n} step" if n == 1 else f"{n} steps"


def _values(measurements: tuple[Measurement, ...]) -> str:
    return ", ".join(f"{item.signal} {item.value:.3g}" for item in measurements[:MAX_MEASUREMENTS])


def _not_measured(diagnosis: Diagnosis) -> str:
    """Return the first finding that lacks an argument, the argument, and how many other arguments are lacking.

    Where none lacks any, the checks that are not known need more steps.
    """
    lacking = [
        (observation.finding.title, gap.provide)
        for observation in diagnosis.unknown
        for gap in observation.missing
        if not gap.more_steps
    ]
    if not lacking:
        return "; the other checks need more steps" if diagnosis.needs_more_steps else ""
    # What an argument of log_batch gives comes before what nothing can give.
    title, provide = min(lacking, key=lambda gap: not gap[1].startswith("pass "))
    more = len({gap[1] for gap in lacking}) - 1
    return f"; not measured: {title} ({provide}){f' and {more} more' if more else ''}"


def _how_to_measure(diagnosis: Diagnosis) -> str:
    provided = [gap.provide for gap in diagnosis.missing if gap.provide.startswith("pass rollout_logprobs")]
    return f" ({provided[0]})" if provided else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInputs:
    """The inputs of a verdict: the firing alerts, the newest incident, the newest diagnosis and the usual step time."""

    run: Run
    alerts: Sequence[Alert] = ()
    incident: Incident | None = None
    diagnosis: Diagnosis | None = None
    expected_step_seconds: float | None = None

    @property
    def standing_incident(self) -> Incident | None:
        """The incident that is open, or that stood when the run finished; an earlier one that healed is none."""
        return standing_incident(self.run, self.incident)


def standing_incident(run: Run, incident: Incident | None) -> Incident | None:
    """Return a run's newest incident if it is open, or if it stood when the run finished.

    A run that was started again after that end, and finished without an incident, has none.
    """
    if incident is None or incident.is_open:
        return incident
    alert = incident.alert
    is_newer_start = (run.attempt_id or 0) > alert.attempt_id and (run.last_report_at or 0.0) > alert.updated_at
    stands = incident.ended_with_run and run.state is RunState.FINISHED and not is_newer_start
    return incident if stands else None


def judge_run(inputs: VerdictInputs, *, now: float) -> RunVerdict:
    """Return the verdict on a run.

    A crash comes first. Otherwise an open incident or a firing page means `act`, a stall comes next, and a warning or
    a finding means `watch`. Without problems the words follow what is known of the run.
    Args: now: seconds since the epoch.
    Source: formulas, section 9, verdicts.
    """
    run, incident = inputs.run, inputs.standing_incident
    firing = [alert for alert in inputs.alerts if _counts(alert)]
    problems = problems_of(firing, incident=incident, diagnosis=inputs.diagnosis)
    if run.state is RunState.FINISHED and not firing:
        return _finished(inputs, problems, now=now)
    severities = {alert.severity for alert in firing} | ({incident.severity} if incident is not None else set())
    if run.state is RunState.CRASHED:
        return _crashed(inputs, problems)
    if Severity.PAGE in severities:
        return _problem_verdict(VerdictKind.ACT, problems)
    if run.state is RunState.STALLED:
        return _stalled(inputs, problems, now=now)
    if Severity.WARN in severities or (inputs.diagnosis is not None and inputs.diagnosis.observed):
        return _problem_verdict(VerdictKind.WATCH, problems)
    return _without_problems(inputs)


def _counts(alert: Alert) -> bool:
    is_told = alert.severity is not Severity.INFO and alert.rule not in STATE_RULES
    return is_told and alert.state is AlertState.FIRING


def urgency_of(verdict: RunVerdict, *, alerts: Sequence[Alert], acked: frozenset[str]) -> Urgency:
    """Return how soon to investigate a run; not at all once all firing alerts that notify are acknowledged.

    Args: alerts: of the run, those that notify; acked: the acknowledged episodes.
    """
    firing = [alert for alert in alerts if alert.state is AlertState.FIRING]
    all_acked = bool(firing) and all(alert.episode in acked for alert in firing)
    return Urgency.NONE if all_acked else verdict.urgency


def _problem_verdict(kind: VerdictKind, problems: Sequence[RunProblem], *, ended: str = "") -> RunVerdict:
    """Return a verdict that names the leading problem, and its symptoms in brief."""
    first = problems[0]
    why = f"{first.words}{symptoms_in_words(problems)}{ended}"
    return RunVerdict(kind=kind, why=why, since_step=first.since_step, todo=first.todo or None, cause=first.cause)


def _crashed(inputs: VerdictInputs, problems: Sequence[RunProblem]) -> RunVerdict:
    run = inputs.run
    error = (run.end_phrase or "the trainer ended with an error")[:MAX_ERROR_LENGTH]
    return _stopped(inputs, problems, RunVerdict(kind=VerdictKind.CRASHED, why=f"{error}{_at(run)}"))


def _stalled(inputs: VerdictInputs, problems: Sequence[RunProblem], *, now: float) -> RunVerdict:
    run, expected = inputs.run, inputs.expected_step_seconds
    silent = now - (run.created_at if run.last_report_at is None else run.last_report_at)
    every = "" if expected is None or expected < SHORTEST_TOLD_SECONDS else f", expected one every {duration(expected)}"
    why = f"no report for {duration(silent)}{every}"
    return _stopped(inputs, problems, RunVerdict(kind=VerdictKind.STALLED, why=why))


def _stopped(inputs: VerdictInputs, problems: Sequence[RunProblem], verdict: RunVerdict) -> RunVerdict:
    """Return the verdict on a run that stopped, with what was wrong before."""
    before = f"; before: {problems[0].words}" if problems else ""
    todo = next((alert.runbook for alert in inputs.alerts if alert.rule == inputs.run.state.value), None)
    since_step = problems[0].since_step if problems else inputs.run.last_step
    cause = problems[0].cause if problems else ""
    return replace(verdict, why=f"{verdict.why}{before}", since_step=since_step, todo=todo, cause=cause)


def _finished(inputs: VerdictInputs, problems: Sequence[RunProblem], *, now: float) -> RunVerdict:
    """Return how a run ended; it keeps that, but a day later nobody needs to investigate."""
    run, diagnosis = inputs.run, inputs.diagnosis
    is_past = now - (run.last_report_at or run.created_at) >= REVIEW_SECONDS
    if problems:
        kind = VerdictKind.FINISHED if is_past else VerdictKind.WATCH
        if inputs.standing_incident is not None:
            kind = VerdictKind.ENDED_ILL
        verdict = _problem_verdict(kind, problems, ended=f"; ended{_at(run)}")
        todo = None if is_past or verdict.todo is None else for_next_run(verdict.todo)
        return replace(verdict, is_past=is_past, todo=todo)
    if diagnosis is None:
        is_due = run.last_step is not None and not is_past
        kind = VerdictKind.UNKNOWN if is_due else VerdictKind.FINISHED
        return RunVerdict(kind=kind, why=f"ended{_at(run)}{', not diagnosed yet' if is_due else ''}")
    known = {
        Assurance.TRAINING_HEALTHY: "training healthy, agreement not measured",
        Assurance.UNKNOWN: "unknown whether healthy",
    }
    words = known.get(diagnosis.assurance, diagnosis.assurance.value)
    return RunVerdict(kind=VerdictKind.FINISHED, why=f"ended{_at(run)}, {words}")


def _without_problems(inputs: VerdictInputs) -> RunVerdict:
    diagnosis = inputs.diagnosis
    if diagnosis is None:
        none_yet = inputs.run.last_step is None
        return RunVerdict(kind=VerdictKind.UNKNOWN, why="no step has closed yet" if none_yet else "not diagnosed yet")
    pause = ", paused" if inputs.run.state is RunState.PAUSED else ""
    return RunVerdict(kind=KINDS[diagnosis.assurance], why=f"{assurance_words(diagnosis)}{pause}")


def _at(run: Run) -> str:
    return "" if run.last_step is None else f" at step {run.last_step}"
