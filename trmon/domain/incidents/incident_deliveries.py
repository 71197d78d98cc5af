"""Deliveries of an incident: its opening, its updates and its end, with the cause and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from trmon.domain.alerts.alert import Alert
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import NotifiedCause
from trmon.domain.alerts.transition_deliveries import deliveries_of
from trmon.domain.alerts.transitions import Transition
from trmon.domain.context.pass_context import PassContext
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.incidents.incident import CAUSE_LABEL, finding_of, incident_title, last_good_step_of
from trmon.domain.model.finding import Severity, form_of_rule


def incident_deliveries(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    """Return one delivery per receiver for a transition of a run's incident.

    That of a finished run is kept: an incident that nobody was told of is told once, as ended ill.
    """
    alert = transition.alert
    if alert is None or transition.event is None or alert.severity is Severity.INFO:
        return ()
    cause = _cause(alert, context)
    return tuple(
        replace(delivery, notification=structs.replace(delivery.notification, cause=cause))
        for delivery in deliveries_of(transition, context)
    )


def _cause(alert: Alert, context: PassContext) -> NotifiedCause:
    finding, rule = finding_of(alert), alert.labels.get(CAUSE_LABEL, "")
    remedy = None if finding is None else remedy_of(finding, form_of_rule(finding, rule))
    last_good = last_good_step_of(alert)
    rendered = None if remedy is None else remedy.render(context.run.config, last_good_step=last_good)
    return NotifiedCause(
        rule=rule,
        finding=None if finding is None else finding.value,
        title=incident_title(rule, finding),
        last_good_step=last_good,
        remedy=alert.runbook if rendered is None else rendered.fix,
        options={} if rendered is None else _options_of(context.run.config, verl=rendered.verl, trl=rendered.trl),
        runbook_url=context.runbook_url(rule),
    )


def _options_of(config: Mapping[str, Any], *, verl: dict[str, str], trl: dict[str, str]) -> dict[str, str]:
    """Return the options of the framework whose configuration the run has; none if that is not known."""
    if any(name.startswith("actor_rollout_ref") for name in config):
        return verl
    return trl if "num_generations" in config or "per_device_train_batch_size" in config else {}
