"""An incident: the alerts of one illness of a run, led by its cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from trmon.domain.alerts.alert import INCIDENT_RULE, SINCE_LABEL, Alert, AlertState
from trmon.domain.diagnosis.conditions import Observation
from trmon.domain.diagnosis.diagnosis import Diagnosis
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.finding import Finding, FindingForm, Severity, form_of_rule, title_of
from trmon.domain.rules.rule import Rule

QUIET_STEPS = 50
"""Steps without a firing alert after which an incident is over."""
CAUSE_LABEL, FINDING_LABEL, LAST_GOOD_LABEL, ENDED_LABEL = "cause", "finding", "last_good_step", "ended"
PREDICTION_RULES = ("collapse_risk", "collapse_risk_high")
"""The built-in rules that predict a collapse: while one leads an incident, nothing has broken yet."""
WITH_THE_RUN = "with the run"
"""The value of `ended` in an incident that stood until its run finished."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """The newest incident of a run, as the alert that carries it, and what decides about its course.

    The alert's step is the first step of the earliest alert that stood when the incident opened. It is stored, never
    moves, and is the since-step unless a prediction came first: then the first step of what was found is, a label.
    `updates` were sent since the opening; `quiet_steps` have passed without a firing alert of health, of the
    `quiet_needed` that end it. The cause fired for `cause_steps` and then not for `cause_quiet_steps`.
    """

    alert: Alert
    rules: tuple[str, ...] = ()
    updates: int = 0
    quiet_steps: int = 0
    quiet_needed: int = QUIET_STEPS
    cause_steps: int = 0
    cause_quiet_steps: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the incident goes on."""
        return self.alert.state is AlertState.FIRING

    @property
    def ended_with_run(self) -> bool:
        """Whether the incident stood until its run finished."""
        return self.alert.labels.get(ENDED_LABEL) == WITH_THE_RUN

    @property
    def title(self) -> str:
        """What the incident is called."""
        return incident_title(self.cause, self.finding)

    @property
    def cause(self) -> str:
        """The rule whose alert leads the incident."""
        return self.alert.labels.get(CAUSE_LABEL, "")

    @property
    def is_prediction(self) -> bool:
        """Whether it is led by a prediction, so that no step is the first bad one."""
        return self.cause in PREDICTION_RULES

    @property
    def finding(self) -> Finding | None:
        """The finding of the cause; None if only symptoms are known."""
        return finding_of(self.alert)

    @property
    def form(self) -> FindingForm | None:
        """On which side the finding left its range; None if it has no forms."""
        return form_of_rule(self.finding, self.cause)

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
        """The last step before the illness began; None if it began with the run."""
        return last_good_step_of(self.alert)


def notifying_alerts(firing: Sequence[Alert], *, health_rules: Collection[str]) -> list[Alert]:
    """Return the firing alerts of a run that notify: an open incident stands for the alerts of health."""
    has_incident = any(alert.is_incident for alert in firing)
    return [alert for alert in firing if not has_incident or alert.rule not in health_rules]


def is_member(alert: Alert, incident: Alert, *, health_rules: Collection[str]) -> bool:
    """Return whether an alert of the same run is part of an incident: it began in it, and it is of health."""
    if alert.rule not in health_rules or alert.severity is Severity.INFO:
        return False
    is_over = incident.state is AlertState.RESOLVED and alert.since_at > incident.updated_at
    return not is_over and (alert.attempt_id, alert.step) >= (incident.attempt_id, incident.step)


def incident_identity(run_id: int) -> str:
    """Return the identity of the alert that carries the incidents of a run."""
    return f"{run_id}/{INCIDENT_RULE}"


def finding_of(alert: Alert) -> Finding | None:
    """Return the finding that leads an incident's alert; None if only symptoms are known."""
    letter = alert.labels.get(FINDING_LABEL)
    return next((finding for finding in Finding if finding.value == letter), None)


def last_good_step_of(alert: Alert) -> int | None:
    """Return the last good step in an incident's alert."""
    step = alert.labels.get(LAST_GOOD_LABEL)
    return None if step is None else int(step)


def incident_labels(
    cause: str, finding: Finding | None, last_good_step: int | None, *, since_step: int | None = None
) -> dict[str, str]:
    """Return the labels of an incident's alert; since_step: where its cause began, if later than the incident."""
    labels = {CAUSE_LABEL: cause}
    if finding is not None:
        labels[FINDING_LABEL] = finding.value
    if last_good_step is not None:
        labels[LAST_GOOD_LABEL] = str(last_good_step)
    if since_step is not None:
        labels[SINCE_LABEL] = str(since_step)
    return labels


def incident_title(cause: str, finding: Finding | None) -> str:
    """Return what an incident is called: its finding, else the rule that leads it."""
    if cause in PREDICTION_RULES:
        return "risk of collapse"
    return cause.replace("_", " ") if finding is None else title_of(finding, form_of_rule(finding, cause))


def led_diagnosis(
    diagnosis: Diagnosis, incident: Incident, *, firing: Iterable[Alert] = (), rules: Mapping[str, Rule] | None = None
) -> Diagnosis:
    """Return a diagnosis whose cause is that of a standing incident, even if the newest steps no longer show it.

    First steps are those at which the incident and the firing alerts began, which do not move with the steps read.
    """
    since = _first_steps(incident, firing, rules or {})
    observed = tuple(_fixed(one, since.get(one.finding)) for one in diagnosis.observed)
    finding = incident.finding or (observed[0].finding if observed else Finding.UNKNOWN)
    led = tuple(sorted(observed, key=lambda one: one.finding is not finding))
    form = incident.form or next((one.form for one in led if one.finding is finding), None)
    return replace(
        diagnosis,
        primary=finding,
        form=form,
        observed=led,
        shortfall=(),
        agreement=(),
        training=(),
        remedy=remedy_of(finding, form),
        temperatures=diagnosis.temperatures if finding is Finding.TEMPERATURE else None,
    )


def _first_steps(incident: Incident, firing: Iterable[Alert], rules: Mapping[str, Rule]) -> dict[Finding, int]:
    found: dict[Finding, int] = {}
    for alert in firing:
        rule = rules.get(alert.rule)
        if rule is not None and rule.finding is not None:
            found[rule.finding] = min(alert.step, found.get(rule.finding, alert.step))
    return found if incident.finding is None else {**found, incident.finding: incident.since_step}


def _fixed(observation: Observation, since_step: int | None) -> Observation:
    """Return an observation that began at a known step, with its oldest evidence."""
    began = observation.since_step
    if since_step is None or began is None:
        return observation
    evidence = tuple(
        replace(item, since_step=since_step) if item.since_step <= began else item for item in observation.evidence
    )
    return replace(observation, since_step=since_step, evidence=evidence)
