"""The course of an incident: when it opens, when its cause is revised or it worsens, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from trmon.domain.alerts.alert import INCIDENT_RULE, Alert, AlertState
from trmon.domain.alerts.inhibition import SEVERITY_RANK
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, transition_event
from trmon.domain.incidents.incident import (
    ENDED_LABEL,
    QUIET_STEPS,
    WITH_THE_RUN,
    Incident,
    incident_identity,
    incident_labels,
    incident_title,
)
from trmon.domain.model.finding import CAUSES, Finding
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.severity import Severity
from trmon.domain.rules.rule import Rule

DAMPING_STEPS = 1_000
"""Each earlier incident that ended within so many steps doubles the steps that must be quiet."""
MAX_DOUBLINGS = 4
CAUSE_QUIET_STEPS = 20
"""Steps after which a cause that no longer fires gives way to a later one."""
LATEST_CAUSE_STEPS = 40
"""A finding that begins so many steps after the reward began to fall is a consequence: gradients that vanished jump.

Averages over 20 steps and `for_steps` delay a cause by less. Equal rewards follow a collapse at any delay.
"""
MAX_UPDATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStep:
    """One step of a run as its incident sees it: the firing alerts of health, and which step was the one before."""

    run_id: int
    run: str
    key: BatchKey
    at: float
    firing: Sequence[Alert]
    rules: Mapping[str, Rule]
    known_steps: Sequence[int]
    recent_ends: int = 0

    @property
    def leader(self) -> Alert:
        """The firing alert that comes first in the order of causes; the most severe of equals, then the earliest."""
        return min(self.firing, key=lambda alert: (self._rank(alert.rule), -SEVERITY_RANK[alert.severity], alert.step))

    def ranks_before(self, alert: Alert, cause: str) -> bool:
        """Whether an alert's finding comes before that of another rule."""
        return self._rank(alert.rule) < self._rank(cause)

    def shares_finding(self, alert: Alert, cause: str) -> bool:
        """Whether an alert's finding is that of another rule."""
        return self._rank(alert.rule) == self._rank(cause)

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
        delay = 0 if finding is Finding.NO_LEARNING_SIGNAL else LATEST_CAUSE_STEPS
        return min(began) >= min(fallen) + delay


def follow_incident(incident: Incident | None, step: IncidentStep) -> tuple[Incident | None, Transition | None]:
    """Return the incident after one more step, and the transition to tell: an opening, an update or the end.

    Steps without any firing alert count as quiet; the more incidents had ended before it opened, the more are needed.
    """
    if incident is None or not incident.is_open:
        return _opened(step) if step.firing else (incident, None)
    if step.firing:
        return _continued(incident, step)
    quiet = incident.quiet_steps + 1
    if quiet < incident.quiet_needed:
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
    leader, since = step.leader, min(step.firing, key=lambda alert: alert.step)
    earlier = [known for known in step.known_steps if known < since.step]
    last_good = max(earlier, default=None)
    alert = Alert(
        identity=incident_identity(step.run_id),
        run_id=step.run_id,
        rule=INCIDENT_RULE,
        severity=_worst(step.firing),
        state=AlertState.FIRING,
        attempt_id=since.attempt_id,
        step=since.step,
        update=None,
        since_at=step.at,
        updated_at=step.at,
        value=leader.value,
        threshold=leader.threshold,
        summary="",
        labels={},
    )
    alert = _led_by(alert, leader, step, last_good_step=last_good)
    incident = Incident(
        alert=alert,
        rules=tuple(sorted(firing.rule for firing in step.firing)),
        quiet_needed=QUIET_STEPS * 2 ** min(step.recent_ends, MAX_DOUBLINGS),
    )
    return incident, _transition(alert, reason=TransitionReason.OPENED, key=step.key)


def _continued(incident: Incident, step: IncidentStep) -> tuple[Incident, Transition | None]:
    leader, cause = step.leader, incident.cause
    still_firing = any(alert.rule == cause for alert in step.firing)
    cause_quiet = 0 if still_firing else incident.cause_quiet_steps + 1
    is_revised = step.ranks_before(leader, cause) or (cause_quiet >= CAUSE_QUIET_STEPS and leader.rule != cause)
    severity = max(incident.severity, _worst(step.firing), key=SEVERITY_RANK.__getitem__)
    worsens = severity is not incident.severity
    incident = structs.replace(
        incident,
        quiet_steps=0,
        cause_quiet_steps=0 if is_revised else cause_quiet,
        rules=tuple(sorted({*incident.rules, *(alert.rule for alert in step.firing)})),
    )
    if not is_revised and not worsens:
        return incident, None
    alert = replace(incident.alert, severity=severity, updated_at=step.at)
    if is_revised or step.shares_finding(leader, cause):
        alert = _led_by(alert, leader, step, last_good_step=incident.last_good_step)
    changed = structs.replace(incident, alert=alert)
    if incident.updates >= _updates_allowed(severity):
        return changed, Transition(track=AlertTrack(alert=alert), reason=TransitionReason.FIRING, alert=alert)
    reason = TransitionReason.WORSENED if worsens else TransitionReason.REVISED
    return structs.replace(changed, updates=incident.updates + 1), _transition(alert, reason=reason, key=step.key)


def _updates_allowed(severity: Severity) -> int:
    """Return the updates an incident may have; the last one is kept for its becoming a page, which must be told."""
    return MAX_UPDATES if severity is Severity.PAGE else MAX_UPDATES - 1


def _led_by(alert: Alert, leader: Alert, step: IncidentStep, *, last_good_step: int | None) -> Alert:
    rule = step.rules.get(leader.rule)
    finding = None if rule is None else rule.finding
    detail = leader.summary.removeprefix(f"{step.run}: ")
    return replace(
        alert,
        value=leader.value,
        threshold=leader.threshold,
        summary=f"{step.run}: {incident_title(leader.rule, finding)} since step {alert.step}: {detail}",
        labels=incident_labels(leader.rule, finding, last_good_step),
        runbook=leader.runbook,
    )


def _worst(alerts: Sequence[Alert]) -> Severity:
    return max((alert.severity for alert in alerts), key=SEVERITY_RANK.__getitem__)


def _transition(alert: Alert, *, reason: TransitionReason, key: BatchKey) -> Transition:
    return Transition(track=AlertTrack(alert=alert), reason=reason, alert=alert, event=transition_event(alert, key=key))
