"""The problems of a run that a verdict names: its incident, or without one its alerts and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert
from trmon.domain.diagnosis.conditions import Observation
from trmon.domain.diagnosis.diagnosis import Diagnosis
from trmon.domain.diagnosis.remedies import for_next_run, remedy_of
from trmon.domain.finding import Severity, title_of
from trmon.domain.incidents.incident import Incident

DUPLICATE_TRAINERS_RULE = "two_trainers"
"""The built-in rule that is named before any finding, since findings may mix two trainers."""
QUARANTINE_RULE = "batch_quarantined"
"""The built-in rule that is named right after the cause, since quarantined parts have no findings."""
MAX_SYMPTOMS = 2
"""As many symptoms as a sentence can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProblem:
    """A problem in words, its first step, what to do about it, and its cause: a rule, or without one a finding."""

    cause: str
    words: str
    since_step: int
    todo: str

    @property
    def short(self) -> str:
        """The problem without its first step."""
        return self.words.split(" since step ")[0]


def problem_of(incident: Incident) -> RunProblem:
    """Return an incident as a problem, e.g. `reward collapse since step 62 (last good step 61)`."""
    has_broken = incident.last_good_step is not None and not incident.is_prediction
    last_good = "" if not has_broken else f" (last good step {incident.last_good_step})"
    return RunProblem(
        cause=incident.cause,
        words=f"{incident.title} since step {incident.since_step}{last_good}",
        since_step=incident.since_step,
        todo=first_action(incident),
    )


def first_action(incident: Incident) -> str:
    """Return the first thing to do about an incident."""
    remedy = None if incident.finding is None else remedy_of(incident.finding, incident.form)
    fix = incident.alert.runbook if remedy is None else remedy.fix
    return for_next_run(fix) if incident.ended_with_run else fix


def problems_of(
    firing: Sequence[Alert], *, incident: Incident | None, diagnosis: Diagnosis | None
) -> tuple[RunProblem, ...]:
    """Return the problems, the leading one first.

    A standing incident leads, and its symptoms follow. Without one, duplicate trainers come first, then the findings,
    causes first, or without findings the alerts; quarantined parts follow the first of them.
    """
    worst_first = sorted(firing, key=lambda alert: (list(Severity).index(alert.severity), alert.step))
    duplicates = [_of_alert(alert) for alert in worst_first if alert.rule == DUPLICATE_TRAINERS_RULE]
    quarantine = [_of_alert(alert) for alert in worst_first if alert.rule == QUARANTINE_RULE]
    others = [_of_alert(alert) for alert in worst_first if _is_of_signals(alert, incident)]
    if incident is not None:
        return (problem_of(incident), *duplicates, *quarantine, *others)
    found = [_of_finding(observation) for observation in diagnosis.observed] if diagnosis else []
    others = found or others
    return (*duplicates, *others[:1], *quarantine, *others[1:])


def symptoms_in_words(problems: Sequence[RunProblem]) -> str:
    """Return the problems after the first in a phrase; empty without any."""
    names = list(dict.fromkeys(problem.short for problem in problems[1:]))
    more = f" and {len(names) - MAX_SYMPTOMS} more" if len(names) > MAX_SYMPTOMS else ""
    return f"; also {', '.join(names[:MAX_SYMPTOMS])}{more}" if names else ""


def _is_of_signals(alert: Alert, incident: Incident | None) -> bool:
    is_cause = incident is not None and alert.rule == incident.cause
    return not alert.is_incident and not is_cause and alert.rule not in (DUPLICATE_TRAINERS_RULE, QUARANTINE_RULE)


def _of_alert(alert: Alert) -> RunProblem:
    return RunProblem(
        cause=alert.rule,
        words=f"{alert.rule.replace('_', ' ')} since step {alert.step}",
        since_step=alert.step,
        todo=alert.runbook,
    )


def _of_finding(observation: Observation) -> RunProblem:
    remedy = remedy_of(observation.finding, observation.form)
    assert observation.since_step is not None
    assert remedy is not None
    return RunProblem(
        cause=observation.finding.name.lower(),
        words=f"{title_of(observation.finding, observation.form)} since step {observation.since_step}",
        since_step=observation.since_step,
        todo=remedy.fix,
    )
