"""The problems of a run that a verdict names: its incident, or without one its leading finding and its alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trmon.domain.alerts.alert import Alert
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.remedies import remedy_of
from trmon.domain.findings.sentences import illness_words
from trmon.domain.findings.verdict import Found, Judgement
from trmon.domain.incidents.incident import Incident
from trmon.domain.runs.run import Run
from trmon.domain.severity import Severity

DUPLICATE_TRAINERS_RULE = "two_trainers"
"""The built-in rule that is named before any finding, since findings may mix two trainers."""
QUARANTINE_RULE = "batch_quarantined"
"""The built-in rule that is named right after the cause, since quarantined parts have no findings."""
MAX_SYMPTOMS = 2
"""As many symptoms as a sentence can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProblem:
    """A problem in words, its first step, what to do about it, and its cause: the id of a finding, or a rule."""

    cause: str
    words: str
    since_step: int
    todo: str

    @property
    def short(self) -> str:
        """The problem without its first step."""
        return self.words.split(" since step ")[0]


def title_of_alert(alert: Alert) -> str:
    """Return what an alert is called: its incident's title, else its rule's."""
    return Incident(alert=alert).title if alert.is_incident else title_of_rule(alert.rule)


def cause_of(alert: Alert) -> str:
    """Return the rule of an alert; of an incident, the finding or rule that leads it."""
    return Incident(alert=alert).cause if alert.is_incident else alert.rule


def title_of_rule(name: str) -> str:
    """Return what a rule is called: the title of the finding that it is, else its name in words."""
    spec = builtin_catalogue().by_id.get(name)
    return name.replace("_", " ") if spec is None else spec.title


def first_action(incident: Incident, run: Run) -> str:
    """Return the first thing to do about an incident of a run."""
    if incident.remedy is None:
        return incident.alert.runbook
    last_good, has_ended = incident.last_good_step, incident.ended_with_run or run.state.ended
    return remedy_of(incident.remedy, run, last_good_step=last_good, has_ended=has_ended).first


def problems_of(
    run: Run, firing: Sequence[Alert], *, incident: Incident | None, judgement: Judgement | None
) -> tuple[RunProblem, ...]:
    """Return the problems, the leading one first.

    A standing incident leads, and its symptoms follow. Without one, duplicate trainers come first, then the findings
    that stand, or without any the alerts; quarantined parts follow the first of them.
    """
    worst_first = sorted(firing, key=lambda alert: (list(Severity).index(alert.severity), alert.step))
    duplicates = [_of_alert(alert) for alert in worst_first if alert.rule == DUPLICATE_TRAINERS_RULE]
    quarantine = [_of_alert(alert) for alert in worst_first if alert.rule == QUARANTINE_RULE]
    told = {DUPLICATE_TRAINERS_RULE, QUARANTINE_RULE, "" if incident is None else incident.cause}
    others = [_of_alert(alert) for alert in worst_first if not alert.is_incident and alert.rule not in told]
    if incident is not None:
        return (_of_incident(incident, run, judgement), *duplicates, *quarantine, *others)
    found = [] if judgement is None or not judgement.is_ill else list(_of_judgement(judgement, run))
    others = found or others
    return (*duplicates, *others[:1], *quarantine, *others[1:])


def symptoms_in_words(problems: Sequence[RunProblem]) -> str:
    """Return the problems after the first in a phrase; empty without any."""
    names = list(dict.fromkeys(problem.short for problem in problems[1:]))
    more = f" and {len(names) - MAX_SYMPTOMS} more" if len(names) > MAX_SYMPTOMS else ""
    return f"; also {', '.join(names[:MAX_SYMPTOMS])}{more}" if names else ""


def _of_alert(alert: Alert) -> RunProblem:
    return RunProblem(
        cause=alert.rule,
        words=f"{title_of_alert(alert)} since step {alert.step}",
        since_step=alert.step,
        todo=alert.runbook,
    )


def _of_incident(incident: Incident, run: Run, judgement: Judgement | None) -> RunProblem:
    """Return an incident as a problem, in the judge's words while the same finding leads both."""
    lead = None if judgement is None else judgement.lead
    if judgement is not None and lead is not None and lead.finding == incident.cause:
        words = illness_words(judgement)
    else:
        good = incident.last_good_step
        last_good = "" if good is None else f" (last good step {good})"
        words = f"{incident.title} since step {incident.since_step}{last_good}"
    return RunProblem(
        cause=incident.cause, words=words, since_step=incident.since_step, todo=first_action(incident, run)
    )


def _of_judgement(judgement: Judgement, run: Run) -> Sequence[RunProblem]:
    """Return the findings that warn or page, the leading one with the onset of the illness."""
    lead, *others = [found for found in judgement.findings if found.severity is not Severity.INFO]
    assert judgement.since is not None
    first = _of_finding(lead, run, last_good=judgement.last_good.step if judgement.last_good else None)
    leading = replace(first, words=illness_words(judgement), since_step=judgement.since.step)
    rest = (_of_finding(one, run, last_good=one.last_good.step if one.last_good else None) for one in others)
    return (leading, *rest)


def _of_finding(found: Found, run: Run, *, last_good: int | None) -> RunProblem:
    todo = remedy_of(found.remedy, run, last_good_step=last_good, has_ended=run.state.ended).first
    return RunProblem(
        cause=found.finding,
        words=f"{found.title} since step {found.since.step}",
        since_step=found.since.step,
        todo=todo,
    )
