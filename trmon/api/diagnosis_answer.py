"""Diagnoses, incidents and risks as the service answers them; without FastAPI, which `trmon diagnose` need not load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trmon.domain.alerts.alert import Alert, ListedAlert
from trmon.domain.collapse_risk.risk_model import HORIZON, shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskReading
from trmon.domain.diagnosis.conditions import Observation
from trmon.domain.diagnosis.diagnosis import Diagnosis
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.finding import Finding, meaning_of, title_of
from trmon.domain.framework_names.translation import IgnoredName
from trmon.domain.health.problems import first_action
from trmon.domain.incidents.incident import Incident
from trmon_client.api.diagnosis import (
    CircumstanceInfo,
    CollapseRiskInfo,
    DiagnosisInfo,
    EscalationInfo,
    FindingInfo,
    FleetRiskInfo,
    IgnoredInfo,
    IncidentInfo,
    QuadrantInfo,
)


def _title(diagnosis: Diagnosis, standing: Incident | None) -> str:
    """Return what is wrong, in words; without a finding, how much is known of the run."""
    if diagnosis.primary is not Finding.UNKNOWN:
        return title_of(diagnosis.primary, diagnosis.form)
    return diagnosis.assurance.value if standing is None else standing.title


def newest_incident_info(listed: ListedAlert | None) -> IncidentInfo | None:
    """Return the response for the alert that carries a run's newest incident; None without one."""
    if listed is None:
        return None
    alert, incident = listed.alert, Incident(alert=listed.alert)
    return IncidentInfo.from_fields(
        incident,
        finding=incident.finding.value if incident.finding is not None else None,
        state=alert.state,
        opened_at=alert.since_at,
        ended_at=None if incident.is_open else alert.updated_at,
        fix=first_action(incident),
        identity=alert.identity,
        acked_by=listed.ack.author if listed.ack else None,
    )


def fleet_risk_info(reading: RiskReading | None, *, is_past: bool) -> FleetRiskInfo | None:
    """Return the response for a reading; None without one."""
    if reading is None:
        return None
    return FleetRiskInfo.from_fields(reading, level=reading.level(shipped_model().file, is_past=is_past))


def _collapse_risk_info(reading: RiskReading | None, *, is_past: bool) -> CollapseRiskInfo | None:
    if reading is None:
        return None
    file = shipped_model().file
    return CollapseRiskInfo.from_fields(
        reading,
        level=reading.level(file, is_past=is_past),
        horizon_steps=HORIZON,
        model=file,
        warn_at=file.warn_at,
        page_at=file.page_at,
    )


def _finding_info(observation: Observation) -> FindingInfo:
    finding = observation.finding
    remedy = remedy_of(finding, observation.form)
    assert remedy is not None
    return FindingInfo.from_fields(observation, title=title_of(finding, observation.form), fix=remedy.fix)


def diagnosis_info(
    diagnosis: Diagnosis,
    *,
    circumstances: Iterable[Alert] = (),
    ignored: Iterable[IgnoredName] = (),
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
    last_good_step: int | None = None,
    standing: Incident | None = None,
    incident: IncidentInfo | None = None,
    is_finished: bool = False,
    has_ended: bool = False,
) -> DiagnosisInfo:
    """Return the response for a diagnosis.

    Args: config, last_good_step: of the run, for the values of the remedy's options; standing: the incident that
    is open, or that stood when the run finished; incident: the newest one; is_finished: whether the run has;
    has_ended: whether it has finished or crashed.
    """
    first = diagnosis.observed[0].since_step if diagnosis.observed else None
    return DiagnosisInfo.from_fields(
        diagnosis,
        title=_title(diagnosis, standing),
        meaning=meaning_of(diagnosis.primary, diagnosis.form),
        since_step=first if standing is None else standing.since_step,
        last_good_step=last_good_step,
        incident=incident,
        collapse_risk=_collapse_risk_info(diagnosis.collapse_risk, is_past=is_finished or diagnosis.has_collapsed),
        has_ended=has_ended,
        remedy=diagnosis.rendered_remedy(config, last_good_step=last_good_step, has_ended=has_ended),
        circumstances=[
            CircumstanceInfo.from_fields(alert, since_step=alert.step, fix=alert.runbook) for alert in circumstances
        ],
        observed=[_finding_info(item) for item in diagnosis.observed],
        unknown=[_finding_info(item) for item in diagnosis.unknown],
        quadrant=QuadrantInfo.from_fields(quadrant=diagnosis.quadrant, advice=diagnosis.quadrant.advice),
        escalation=EscalationInfo.from_fields(diagnosis.escalation, advice=diagnosis.escalation.stage.advice),
        ignored=[IgnoredInfo.from_fields(one) for one in ignored],
        framework=framework,
    )
