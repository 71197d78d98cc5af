"""The diagnosis of a run in the light of its incident, so that both name one cause and one first step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trmon.domain.alerts.alert import Alert
from trmon.domain.diagnosis import Diagnosis, Finding, Observation, remedy_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.rules.rule import Rule


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
