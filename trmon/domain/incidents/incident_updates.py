"""Updates of an incident: when it opens, when its cause is revised or it worsens, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from trmon.domain.alerts.alert import INCIDENT_RULE, Alert, AlertState
from trmon.domain.alerts.silences import SEVERITY_RANK
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, transition_event
from trmon.domain.finding import CAUSES, Finding, Severity
from trmon.domain.identity import BatchKey
from trmon.domain.incidents.incident import (
    ENDED_LABEL,
    QUIET_STEPS,
    WITH_THE_RUN,
    Incident,
    incident_identity,
    incident_labels,
    incident_title,
    last_good_step_of,
)
from trmon.domain.rules.rule import Rule

DAMPING_STEPS = 1_000
"""Each earlier incident that ended within so many steps doubles the steps that must be quiet."""
MAX_DOUBLINGS = 4
CAUSE_QUIET_STEPS = 20
"""Steps after which a cause that no longer fires gives way to a later one, if it did not fire for longer than that."""
LATEST_CAUSE_STEPS = 40
"""A finding that begins so many steps after the illness, or after the reward began to fall, is a consequence.

Averages over 20 steps and `for_steps` delay a cause by less. Equal rewards follow a collapse at any delay.
"""
COLLAPSE_DELAY_STEPS = 20
"""Steps by which the average of the reward falls after the rewards: equal rewards that begin within them follow it."""
OPENING_STEPS = 10
"""An incident without a page opens so many steps after its first finding began: the cause may be certain later."""
MAX_UPDATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStep:
    """One step of a run as its incident sees it: the firing alerts of health, and which step was the one before.

    `is_last` is true if the run finished after it: `firing` is then without predictions, which ended with the run.
    """

    run_id: int
    run: str
    key: BatchKey
    at: float
    firing: Sequence[Alert]
    rules: Mapping[str, Rule]
    known_steps: Sequence[int]
    recent_ends: int = 0
    is_last: bool = False

    @property
    def opens_incident(self) -> bool:
        """Whether an incident opens: at once with a page or at the end of the run, else after the steps of waiting."""
        if not self.firing:
            return False
        first = min(alert.step for alert in self.firing)
        has_waited = sum(known >= first for known in self.known_steps) > OPENING_STEPS
        return has_waited or self.is_last or any(alert.severity is Severity.PAGE for alert in self.firing)

    def place(self, alert: Alert) -> tuple[int, int, int]:
        """Return the place of an alert in the order of causes; of equals the most severe is first, then the oldest."""
        return self._rank(alert.rule), -SEVERITY_RANK[alert.severity], alert.step

    def can_explain(self, alert: Alert, incident: Incident) -> bool:
        """Whether an alert is that of the cause, or began early enough to be the cause, or is a page."""
        is_early = alert.step < incident.since_step + LATEST_CAUSE_STEPS
        is_known = incident.finding is not None and alert.rule != incident.cause
        return is_early or not is_known or alert.severity is Severity.PAGE

    def ranks_before(self, alert: Alert, cause: str) -> bool:
        """Whether an alert's finding comes before that of another rule."""
        return self._rank(alert.rule) < self._rank(cause)

    def shares_finding(self, alert: Alert, cause: str) -> bool:
        """Whether an alert's finding is that of another rule."""
        return self._rank(alert.rule) == self._rank(cause)

    def is_prediction(self, name: str) -> bool:
        """Whether a rule predicts a collapse, rather than shows what is wrong."""
        rule = self.rules.get(name)
        return rule is not None and rule.is_prediction

    def last_good(self, since_step: int) -> int | None:
        """Return the last step before another; None if it is the first of the run."""
        return max((known for known in self.known_steps if known < since_step), default=None)

    def first_found(self) -> int:
        """Return the step at which the oldest alert began that does not merely predict, or without one the oldest."""
        found = [alert.step for alert in self.firing if not self.is_prediction(alert.rule)]
        return min(found or [alert.step for alert in self.firing])

    def _rank(self, name: str) -> int:
        finding = self._finding(name)
        return len(CAUSES) if finding is None or self._is_consequence(name, finding) else CAUSES.index(finding)

    def _finding(self, name: str) -> Finding | None:
        rule = self.rules.get(name)
        return None if rule is None else rule.finding

    def _is_consequence(self, name: str, finding: Finding) -> bool:
        """Whether a firing finding began too late to explain why the reward collapsed."""
        fallen = [alert.step for alert in self.firing if self._finding(alert.rule) is Finding.REWARD_COLLAPSE]
        began = [alert.step for alert in self.firing if alert.rule == name]
        if not fallen or not began or finding is Finding.REWARD_COLLAPSE:
            return False
        delay = -COLLAPSE_DELAY_STEPS if finding is Finding.NO_LEARNING_SIGNAL else LATEST_CAUSE_STEPS
        return min(began) >= min(fallen) + delay


def follow_incident(incident: Incident | None, step: IncidentStep) -> tuple[Incident | None, Transition | None]:
    """Return the incident after one more step, and the transition to tell: an opening, an update or the end.

    Steps without any firing alert count as quiet; the more incidents had ended before it opened, the more are needed.
    An incident that a prediction leads is over when its run finishes.
    """
    if incident is None or not incident.is_open:
        return _opened(step) if step.opens_incident else (incident, None)
    if step.firing:
        return _continued(incident, step)
    quiet = incident.quiet_steps + 1
    did_not_come = step.is_last and step.is_prediction(incident.cause)
    if quiet < incident.quiet_needed and not did_not_come:
        return structs.replace(incident, quiet_steps=quiet), None
    return end_incident(incident, reason=TransitionReason.RESOLVED, key=step.key, at=step.at)


def end_incident(
    incident: Incident, *, reason: TransitionReason, key: BatchKey, at: float
) -> tuple[Incident, Transition]:
    """Return the incident after its end, and the transition; one that ends with its run is labelled so."""
    is_of_run = reason is TransitionReason.FINISHED
    labels = incident.alert.labels | ({ENDED_LABEL: WITH_THE_RUN} if is_of_run else {})
    alert = replace(incident.alert, state=AlertState.RESOLVED, updated_at=at, labels=labels)
    return structs.replace(incident, alert=alert), _transition(alert, reason=reason, key=key)


def _opened(step: IncidentStep) -> tuple[Incident, Transition]:
    leader, first = min(step.firing, key=step.place), min(step.firing, key=lambda alert: alert.step)
    alert = Alert(
        identity=incident_identity(step.run_id),
        run_id=step.run_id,
        rule=INCIDENT_RULE,
        severity=_worst(step.firing),
        state=AlertState.FIRING,
        attempt_id=first.attempt_id,
        step=first.step,
        update=None,
        since_at=step.at,
        updated_at=step.at,
        value=leader.value,
        threshold=leader.threshold,
        summary="",
        labels={},
    )
    since_step = first.step if step.is_prediction(leader.rule) else step.first_found()
    alert = _led_by(alert, leader, step, since_step=since_step)
    incident = Incident(
        alert=alert,
        rules=tuple(sorted(firing.rule for firing in step.firing)),
        quiet_needed=QUIET_STEPS * 2 ** min(step.recent_ends, MAX_DOUBLINGS),
    )
    return incident, _transition(alert, reason=TransitionReason.OPENED, key=step.key)


def _continued(incident: Incident, step: IncidentStep) -> tuple[Incident, Transition | None]:
    cause = incident.cause
    still_firing = any(alert.rule == cause for alert in step.firing)
    cause_steps = incident.cause_steps + still_firing
    cause_quiet = 0 if still_firing else incident.cause_quiet_steps + 1
    is_over = cause_quiet >= max(CAUSE_QUIET_STEPS, cause_steps) or (step.is_last and step.is_prediction(cause))
    candidates = [alert for alert in step.firing if is_over or step.can_explain(alert, incident)]
    leader = min(candidates, key=step.place, default=None)
    is_revised = leader is not None and leader.rule != cause and (is_over or step.ranks_before(leader, cause))
    severity = max(incident.severity, _worst(step.firing), key=SEVERITY_RANK.__getitem__)
    worsens = severity is not incident.severity
    incident = structs.replace(
        incident,
        quiet_steps=0,
        cause_steps=0 if is_revised else cause_steps,
        cause_quiet_steps=0 if is_revised else cause_quiet,
        rules=tuple(sorted({*incident.rules, *(alert.rule for alert in step.firing)})),
    )
    if leader is None or not (is_revised or worsens):
        return incident, None
    alert = replace(incident.alert, severity=severity, updated_at=step.at)
    if is_revised or step.shares_finding(leader, cause):
        came_true = incident.is_prediction and not step.is_prediction(leader.rule)
        alert = _led_by(alert, leader, step, since_step=step.first_found() if came_true else incident.since_step)
    changed = structs.replace(incident, alert=alert)
    if incident.updates >= _updates_allowed(severity):
        return changed, Transition(track=AlertTrack(alert=alert), reason=TransitionReason.FIRING, alert=alert)
    reason = TransitionReason.WORSENED if worsens else TransitionReason.REVISED
    return structs.replace(changed, updates=incident.updates + 1), _transition(alert, reason=reason, key=step.key)


def _updates_allowed(severity: Severity) -> int:
    """Return the updates an incident may have; the last one is kept for its becoming a page, which must be told."""
    return MAX_UPDATES if severity is Severity.PAGE else MAX_UPDATES - 1


def _led_by(alert: Alert, leader: Alert, step: IncidentStep, *, since_step: int) -> Alert:
    """Return an incident's alert led by another; the last good step is the stored one unless the first step moved."""
    rule = step.rules.get(leader.rule)
    finding = None if rule is None else rule.finding
    detail = leader.summary.removeprefix(f"{step.run}: ")
    is_known = bool(alert.labels) and since_step == alert.since_step
    last_good_step = last_good_step_of(alert) if is_known else step.last_good(since_step)
    later = since_step if since_step > alert.step else None
    return replace(
        alert,
        value=leader.value,
        threshold=leader.threshold,
        summary=f"{step.run}: {incident_title(leader.rule, finding)} since step {since_step}: {detail}",
        labels=incident_labels(leader.rule, finding, last_good_step, since_step=later),
        runbook=leader.runbook,
    )


def _worst(alerts: Sequence[Alert]) -> Severity:
    return max((alert.severity for alert in alerts), key=SEVERITY_RANK.__getitem__)


def _transition(alert: Alert, *, reason: TransitionReason, key: BatchKey) -> Transition:
    return Transition(track=AlertTrack(alert=alert), reason=reason, alert=alert, event=transition_event(alert, key=key))
