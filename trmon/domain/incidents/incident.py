"""An incident: the alerts of one illness of a run, led by its cause."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from trmon.domain.alerts.alert import INCIDENT_RULE, Alert, AlertState
from trmon.domain.findings.verdict import PREDICTION, Judgement
from trmon.domain.severity import Severity

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
