"""Verdicts on runs: from what is stored of a run to the verdict on it, and its words. The judge found what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.findings.judge import Place
from trmon.domain.findings.verdict import ENOUGH_ROWS, HISTORY_UNAVAILABLE, Judgement, Word, before_first_row, words_of
from trmon.domain.health.judgement import RunVerdict, Urgency, VerdictKind, duration
from trmon.domain.health.problems import RunProblem, problems_of, symptoms_in_words
from trmon.domain.incidents.incident import ENDED_ILL, Incident, how_run_ends
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import Severity

REVIEW_SECONDS = 86_400.0
"""How long a run that ended ill is still to be investigated after its end."""
SHORTEST_TOLD_SECONDS = 0.1
"""The shortest usual step that the verdict on a stalled run states; shorter ones are of tests and replays."""
STATE_RULES = frozenset({"stalled", "crashed"})
"""The built-in rules that only repeat the state of the run."""
MAX_ERROR_LENGTH = 120
KINDS: Mapping[Word, VerdictKind] = {
    Word.FINDING: VerdictKind.WATCH,
    Word.OUTSIDE: VerdictKind.OUTSIDE,
    Word.LEARNT_NOTHING: VerdictKind.LEARNT_NOTHING,
    Word.TOO_FEW_ROWS: VerdictKind.TOO_FEW_ROWS,
    Word.HEALTHY: VerdictKind.HEALTHY,
    Word.TRAINING_HEALTHY: VerdictKind.TRAINING_HEALTHY,
    Word.NOT_JUDGED: VerdictKind.NO_DRIFT_FOUND,
    Word.NOTHING_KNOWN: VerdictKind.UNKNOWN,
}
"""The kind of verdict for each word of the judge; a finding is worse where an alert or an incident pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInputs:
    """The inputs of a verdict: the firing alerts, the newest incident, the judgement and the usual step time."""

    run: Run
    alerts: Sequence[Alert] = ()
    incident: Incident | None = None
    judgement: Judgement | None = None
    expected_step_seconds: float | None = None


def known_judgement(run: Run, judgement: Judgement | None) -> Judgement | None:
    """Return the judgement on a run, of no row where it has a step and none is judged; None before its first step."""
    if judgement is not None or run.last_step is None:
        return judgement
    return before_first_row(Place(run.attempt_id or 0, run.last_step))


def standing_incident(run: Run, incident: Incident | None) -> Incident | None:
    """Return a run's newest incident if it is open, or stood when the run finished and did not start again since."""
    if incident is None or incident.is_open:
        return incident
    alert = incident.alert
    is_newer_start = (run.attempt_id or 0) > alert.attempt_id and (run.last_report_at or 0.0) > alert.updated_at
    stands = incident.ended_with_run and run.state is RunState.FINISHED and not is_newer_start
    return incident if stands else None


def verdict_of(inputs: VerdictInputs, *, now: float) -> RunVerdict:
    """Return the verdict on a run: a crash, act, a stall, watch, else the judge's word. Source: findings, section 3.

    Args: now: seconds since the epoch.
    """
    judgement = known_judgement(inputs.run, inputs.judgement)
    known = replace(inputs, incident=standing_incident(inputs.run, inputs.incident), judgement=judgement)
    verdict = _verdict_of(known, now=now)
    if judgement is None or HISTORY_UNAVAILABLE not in judgement.notes or HISTORY_UNAVAILABLE in verdict.why:
        return verdict
    return replace(verdict, why=f"{verdict.why}; {HISTORY_UNAVAILABLE}")


def _verdict_of(inputs: VerdictInputs, *, now: float) -> RunVerdict:
    run, incident, judgement = inputs.run, inputs.incident, inputs.judgement
    firing = [
        alert
        for alert in inputs.alerts
        if alert.state is AlertState.FIRING and alert.severity is not Severity.INFO and alert.rule not in STATE_RULES
    ]
    problems = problems_of(run, firing, incident=incident, judgement=judgement)
    if run.state is RunState.FINISHED and not firing:
        return _finished(inputs, problems, now=now)
    severities = {alert.severity for alert in firing} | ({incident.severity} if incident is not None else set())
    if run.state is RunState.CRASHED:
        error = (run.end_phrase or "the trainer ended with an error")[:MAX_ERROR_LENGTH]
        return _stopped(inputs, problems, RunVerdict(kind=VerdictKind.CRASHED, why=f"{error}{_at(run)}"))
    if Severity.PAGE in severities:
        return _problem_verdict(VerdictKind.ACT, problems)
    if run.state is RunState.STALLED:
        return _stalled(inputs, problems, now=now)
    if problems:
        return _problem_verdict(VerdictKind.WATCH, problems)
    return _without_problems(inputs)


def urgency_of(verdict: RunVerdict, *, alerts: Sequence[Alert], acked: frozenset[str]) -> Urgency:
    """Return how soon to investigate a run; not at all once all its firing alerts that notify are acknowledged."""
    firing = [one for one in alerts if one.state is AlertState.FIRING and one.severity is not Severity.INFO]
    all_acked = bool(firing) and all(alert.episode in acked for alert in firing)
    return Urgency.NONE if all_acked else verdict.urgency


def _problem_verdict(kind: VerdictKind, problems: Sequence[RunProblem], *, ended: str = "") -> RunVerdict:
    first = problems[0]
    why = f"{first.words}{symptoms_in_words(problems)}{ended}"
    return RunVerdict(kind=kind, why=why, since_step=first.since_step, todo=first.todo or None, cause=first.cause)


def _stalled(inputs: VerdictInputs, problems: Sequence[RunProblem], *, now: float) -> RunVerdict:
    run, expected = inputs.run, inputs.expected_step_seconds
    silent = now - run.newest_at
    every = "" if expected is None or expected < SHORTEST_TOLD_SECONDS else f", expected one every {duration(expected)}"
    why = f"no report for {duration(silent)}{every}"
    return _stopped(inputs, problems, RunVerdict(kind=VerdictKind.STALLED, why=why))


def _stopped(inputs: VerdictInputs, problems: Sequence[RunProblem], verdict: RunVerdict) -> RunVerdict:
    before = f"; before: {problems[0].words}" if problems else ""
    todo = next((alert.runbook for alert in inputs.alerts if alert.rule == inputs.run.state.value), None)
    since_step = problems[0].since_step if problems else inputs.run.last_step
    cause = problems[0].cause if problems else ""
    return replace(verdict, why=f"{verdict.why}{before}", since_step=since_step, todo=todo, cause=cause)


def _finished(inputs: VerdictInputs, problems: Sequence[RunProblem], *, now: float) -> RunVerdict:
    """Return how a run ended; it keeps that, but a day later nobody needs to investigate."""
    run, judgement, incident = inputs.run, inputs.judgement, inputs.incident
    severity = Severity.INFO if incident is None else incident.severity
    if problems and how_run_ends(judgement, severity=severity) == ENDED_ILL:
        is_past = now - run.newest_at >= REVIEW_SECONDS
        verdict = _problem_verdict(VerdictKind.ENDED_ILL, problems, ended=f"; ended{_at(run)}")
        return replace(verdict, is_calm=is_past, todo=None if is_past else verdict.todo)
    if problems:
        verdict = _problem_verdict(VerdictKind.FINISHED, problems)
        return replace(verdict, why=f"ended{_at(run)} with an open warning: {verdict.why}")
    words = "" if judgement is None else f", {words_of(judgement)}"
    return RunVerdict(kind=VerdictKind.FINISHED, why=f"ended{_at(run)}{words}")


def _without_problems(inputs: VerdictInputs) -> RunVerdict:
    judgement = inputs.judgement
    if judgement is None:
        return RunVerdict(kind=VerdictKind.UNKNOWN, why="no step has closed yet")
    kind = KINDS[judgement.word]
    pause = ", paused" if inputs.run.state is RunState.PAUSED else ""
    why = words_of(judgement).removeprefix(kind.words).lstrip(":; ")
    return RunVerdict(kind=kind, why=f"{why}{pause}", is_calm=judgement.rows < ENOUGH_ROWS)


def _at(run: Run) -> str:
    return "" if run.last_step is None else f" at step {run.last_step}"
