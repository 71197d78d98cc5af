"""An incident: the alerts of one illness of a run, led by its cause; when it opens, is revised, worsens and is over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import (
    ENDED_LABEL,
    INCIDENT_RULE,
    SINCE_LABEL,
    Alert,
    AlertState,
    AlertTrack,
    Transition,
    TransitionReason,
    transition_event,
)
from trmon.domain.findings.sentences import illness_words, summary_line
from trmon.domain.findings.verdict import PREDICTION, Judgement
from trmon.domain.identity import BatchKey
from trmon.domain.severity import SEVERITY_RANK, Severity

QUIET_STEPS = 50
"""Steps without a firing alert after which an incident is over."""
CAUSE_LABEL, TITLE_LABEL, REMEDY_LABEL = "cause", "title", "remedy"
LAST_GOOD_LABEL = "last_good_step"
ENDED_ILL, OPEN_WARNING = "ended ill", "finished with an open warning"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """The newest incident of a run, as the alert that carries it, and what decides about its course.

    The alert's own step is that of its opening and never moves; its label says since which step the illness is, which
    follows the finding that leads. `updates` were sent since the opening; `quiet_steps` have passed without a firing
    alert of health, of the `quiet_needed` that end it.
    """

    alert: Alert
    rules: tuple[str, ...] = ()
    updates: int = 0
    quiet_steps: int = 0
    quiet_needed: int = QUIET_STEPS

    @property
    def is_open(self) -> bool:
        """Whether the incident goes on."""
        return self.alert.state is AlertState.FIRING

    @property
    def ended_with_run(self) -> bool:
        """Whether the incident stood until its run finished."""
        return bool(self.alert.run_ended)

    @property
    def title(self) -> str:
        """What the incident is called."""
        return self.alert.labels.get(TITLE_LABEL) or self.cause.replace("_", " ")

    @property
    def cause(self) -> str:
        """The finding, or else the rule, that leads the incident."""
        return self.alert.labels.get(CAUSE_LABEL, "")

    @property
    def remedy(self) -> str | None:
        """The key of the remedy; None if a rule leads it, whose alert says what to do."""
        return self.alert.labels.get(REMEDY_LABEL)

    @property
    def is_prediction(self) -> bool:
        """Whether it is led by a prediction, so that no step is the first bad one."""
        return self.cause == PREDICTION

    @property
    def severity(self) -> Severity:
        """The worst severity so far."""
        return self.alert.severity

    @property
    def since_step(self) -> int:
        """The step at which the illness began."""
        return self.alert.since_step

    @property
    def last_good_step(self) -> int | None:
        """The last good step before the illness began; None if it began with the run, or is not known."""
        step = self.alert.labels.get(LAST_GOOD_LABEL)
        return None if step is None else int(step)


def how_run_ends(judgement: Judgement | None, *, severity: Severity) -> str:
    """Return how a run ends with an open incident: ill if a page stands, or the reward has fallen below its top.

    Args: severity: of the incident, which decides where no finding stands. Source: findings, section 3.
    """
    if judgement is not None and judgement.is_ill:
        return ENDED_ILL if judgement.ends_ill else OPEN_WARNING
    is_at_top = judgement is not None and judgement.at_top
    return ENDED_ILL if severity is Severity.PAGE and not is_at_top else OPEN_WARNING


def leading_alerts(firing: Sequence[Alert], *, health_rules: Collection[str]) -> list[Alert]:
    """Return the firing alerts of a run that count and notify: an open incident stands for those that joined it."""
    incidents = [alert for alert in firing if alert.is_incident]
    return [
        alert
        for alert in firing
        if alert.is_incident or not any(is_member(alert, one, health_rules=health_rules) for one in incidents)
    ]


def is_member(alert: Alert, incident: Alert, *, health_rules: Collection[str]) -> bool:
    """Return whether an alert of the same run is part of an incident: it fired while the incident was open."""
    if alert.rule not in health_rules or alert.severity is Severity.INFO:
        return False
    is_over = incident.state is AlertState.RESOLVED and alert.since_at > incident.updated_at
    ended_before = alert.state is AlertState.RESOLVED and alert.updated_at < incident.since_at
    return not is_over and not ended_before


def incident_identity(run_id: int) -> str:
    """Return the identity of the alert that carries the incidents of a run."""
    return f"{run_id}/{INCIDENT_RULE}"


DAMPING_STEPS = 1_000
"""Each earlier incident that ended within so many steps doubles the steps that must be quiet."""
MAX_DOUBLINGS = 4
OPENING_STEPS = 10
"""An incident without a page opens so many steps after its first finding began: the cause may be certain later."""
MAX_UPDATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStep:
    """One step of a run as its incident sees it: the firing alerts of health, and what the judge says.

    `known_steps` are the newest steps; `explains` tells whether a finding explains another one. `is_last` is true if
    the run finished after it.
    """

    run_id: int
    run: str
    key: BatchKey
    at: float
    firing: Sequence[Alert]
    judgement: Judgement | None
    known_steps: Sequence[int]
    explains: Callable[[str, str], bool]
    recent_ends: int = 0
    is_last: bool = False

    def has_waited_for(self, alert: Alert) -> bool:
        """Whether so many steps have passed since an alert began that its cause would be known, or none follows."""
        is_older = alert.attempt_id < self.key.attempt_id
        return is_older or self.is_last or sum(known >= alert.step for known in self.known_steps) > OPENING_STEPS

    def is_symptom(self, leader: Alert) -> bool:
        """Whether a rule that warns leads, whose cause may be found within the steps of waiting."""
        lead = None if self.judgement is None else self.judgement.lead
        return lead is None and leader.severity is not Severity.PAGE and not self.has_waited_for(leader)

    def stands(self, finding: str) -> bool:
        """Whether the judge says that a finding stands."""
        return self.judgement is not None and any(one.finding == finding for one in self.judgement.findings)

    @property
    def leader(self) -> Alert | None:
        """The alert that leads: that of the judge's leading finding, else of the worst rule, the oldest first."""
        lead = None if self.judgement is None else self.judgement.lead
        if lead is not None:
            return next((alert for alert in self.firing if alert.rule == lead.finding), None)
        return min(self.firing, key=lambda alert: (-SEVERITY_RANK[alert.severity], alert.step), default=None)


def follow_incident(incident: Incident | None, step: IncidentStep) -> tuple[Incident | None, Transition | None]:
    """Return the incident after one more step, and the transition to tell: an opening, an update or the end.

    Steps without any firing alert count as quiet; the more incidents had ended before it opened, the more are needed.
    It is over, too, when its run finishes while no alert fires, or only a prediction.
    """
    if incident is None or not incident.is_open:
        first = min(step.firing, key=lambda alert: (alert.attempt_id, alert.step), default=None)
        is_paged = any(alert.severity is Severity.PAGE for alert in step.firing)
        opens = first is not None and (is_paged or step.has_waited_for(first))
        return _opened(step) if opens and step.leader is not None else (incident, None)
    if step.firing and not (step.is_last and incident.is_prediction and len(step.firing) == 1):
        return _continued(incident, step)
    quiet = incident.quiet_steps + 1
    if quiet < incident.quiet_needed and not step.is_last:
        return structs.replace(incident, quiet_steps=quiet), None
    return end_incident(incident, key=step.key, at=step.at)


def end_incident(
    incident: Incident, *, key: BatchKey, at: float, run_ends: str | None = None
) -> tuple[Incident, Transition]:
    """Return the incident after its end, and the transition; `run_ends`, a label, is None if it is over before."""
    reason = TransitionReason.RESOLVED if run_ends is None else TransitionReason.FINISHED
    labels = incident.alert.labels | ({} if run_ends is None else {ENDED_LABEL: run_ends})
    alert = replace(incident.alert, state=AlertState.RESOLVED, updated_at=at, labels=labels)
    return structs.replace(incident, alert=alert), _transition(alert, reason=reason, key=key)


def _opened(step: IncidentStep) -> tuple[Incident, Transition]:
    leader = step.leader
    assert leader is not None
    alert = Alert(
        identity=incident_identity(step.run_id),
        run_id=step.run_id,
        rule=INCIDENT_RULE,
        severity=_worst(step.firing),
        state=AlertState.FIRING,
        attempt_id=step.key.attempt_id,
        step=step.key.step,
        update=None,
        since_at=step.at,
        updated_at=step.at,
        value=leader.value,
        threshold=leader.threshold,
        summary="",
        labels={},
    )
    alert = _led_by(alert, leader, step)
    incident = Incident(
        alert=alert,
        rules=tuple(sorted(firing.rule for firing in step.firing)),
        quiet_needed=QUIET_STEPS * 2 ** min(step.recent_ends, MAX_DOUBLINGS),
    )
    return incident, _transition(alert, reason=TransitionReason.OPENED, key=step.key)


def _continued(incident: Incident, step: IncidentStep) -> tuple[Incident, Transition | None]:
    leader = step.leader
    severity = max(incident.severity, _worst(step.firing), key=SEVERITY_RANK.__getitem__)
    worsens = severity is not incident.severity
    rules = tuple(sorted({*incident.rules, *(alert.rule for alert in step.firing)}))
    incident = structs.replace(incident, quiet_steps=0, rules=rules)
    if leader is None:
        return incident, None
    alert = replace(incident.alert, severity=severity, updated_at=step.at)
    is_other = leader.rule != incident.cause
    is_left = step.explains(incident.cause, leader.rule) and not step.stands(incident.cause)
    if is_other and (is_left or step.is_symptom(leader)):
        is_other = False  # what a cause leaves behind for a while, or what shows before a cause, is not another cause
    else:
        alert = _led_by(alert, leader, step)
    is_told = is_other or worsens
    if not is_told and alert.labels == incident.alert.labels:
        return incident, None
    changed = structs.replace(incident, alert=alert)
    # The last update is kept for the incident's becoming a page, which must be told.
    if not is_told or incident.updates >= (MAX_UPDATES if severity is Severity.PAGE else MAX_UPDATES - 1):
        return changed, Transition(track=AlertTrack(alert=alert), reason=TransitionReason.FIRING, alert=alert)
    reason = TransitionReason.WORSENED if worsens else TransitionReason.REVISED
    return structs.replace(changed, updates=incident.updates + 1), _transition(alert, reason=reason, key=step.key)


def _led_by(alert: Alert, leader: Alert, step: IncidentStep) -> Alert:
    """Return an incident's alert led by another: it says since when the judge finds the run ill."""
    judgement = step.judgement
    lead = None if judgement is None else judgement.lead
    labels = {CAUSE_LABEL: leader.rule}
    since, summary = leader.step, leader.summary
    if judgement is not None and lead is not None and leader.rule == lead.finding:
        labels |= {TITLE_LABEL: lead.title, REMEDY_LABEL: lead.remedy}
        since = judgement.since.step if judgement.since is not None else leader.step
        summary = summary_line(step.run, illness_words(judgement), lead.evidence)
        if judgement.last_good is not None:
            labels[LAST_GOOD_LABEL] = str(judgement.last_good.step)
    labels[SINCE_LABEL] = str(since)
    return replace(
        alert,
        value=leader.value,
        threshold=leader.threshold,
        summary=summary,
        labels=labels,
        runbook=leader.runbook,
    )


def _worst(alerts: Sequence[Alert]) -> Severity:
    return max((alert.severity for alert in alerts), key=SEVERITY_RANK.__getitem__)


def _transition(alert: Alert, *, reason: TransitionReason, key: BatchKey) -> Transition:
    return Transition(track=AlertTrack(alert=alert), reason=reason, alert=alert, event=transition_event(alert, key=key))
