"""The diagnosis of a run, its incident and its risk as the service answers them."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.api.judgement_answer import judgement_info
from trmon.domain.alerts.alert import Alert, AlertState, ListedAlert
from trmon.domain.collapse_risk.risk_model import HORIZON, model_in_use
from trmon.domain.collapse_risk.risk_reading import RiskReading, calibration_words
from trmon.domain.findings.configuration import is_imported
from trmon.domain.findings.remedies import framework_of_config
from trmon.domain.findings.verdict import COLLAPSE, Judgement
from trmon.domain.health.judgement import Backlog
from trmon.domain.health.problems import first_action
from trmon.domain.health.runbook import answers_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.runs.run import Run, RunState
from trmon_client.api.diagnosis import (
    AnswersInfo,
    BehindInfo,
    CircumstanceInfo,
    CollapseRiskInfo,
    DiagnosisInfo,
    FleetRiskInfo,
    IncidentInfo,
)


def diagnosis_info(
    run: Run,
    judgement: Judgement,
    *,
    circumstances: Sequence[Alert] = (),
    incident: ListedAlert | None = None,
    risk: RiskReading | None = None,
    sends_tokens: bool = False,
) -> DiagnosisInfo:
    """Return the response for the judgement on a run.

    Args: circumstances: firing alerts about the run itself; incident: its newest one, open or not; sends_tokens:
    whether it calls log_batch.
    """
    cause = judgement.lead.finding if judgement.lead is not None else ""
    if incident is not None and incident.alert.state is AlertState.FIRING:
        cause = Incident(alert=incident.alert).cause
    answers = answers_of(run, cause=cause, sends_tokens=sends_tokens) if cause else None
    return judgement_info(
        judgement,
        framework=framework_of_config(run.config),
        config=run.config,
        has_ended=run.state.ended,
        is_log=is_imported(run.config),
        checkpoints=run.checkpoints,
        incident=newest_incident_info(incident, run),
        collapse_risk=_collapse_risk_info(risk, is_past=is_past_collapse(run, judgement)),
        answers=None if answers is None else AnswersInfo.from_fields(answers),
        circumstances=[
            CircumstanceInfo.from_fields(alert, since_step=alert.step, fix=alert.runbook) for alert in circumstances
        ],
    )


def newest_incident_info(listed: ListedAlert | None, run: Run) -> IncidentInfo | None:
    """Return the response for the alert that carries a run's newest incident; None without one."""
    if listed is None:
        return None
    alert, incident = listed.alert, Incident(alert=listed.alert)
    return IncidentInfo.from_fields(
        incident,
        state=alert.state,
        opened_at=alert.since_at,
        ended_at=None if incident.is_open else alert.updated_at,
        fix=first_action(incident, run),
        identity=alert.identity,
        acked_by=listed.ack.author if listed.ack else None,
    )


def behind_info(backlog: Backlog | None, judgement: Judgement | None, *, now: float) -> BehindInfo | None:
    """Return the response for the backlog of a run; None while the judging is not behind."""
    if backlog is None or not backlog.is_late(now):
        return None
    step = None if judgement is None else judgement.place.step
    words, newest_step = backlog.words(step, now=now), backlog.newest_step
    return BehindInfo(judged_step=step, newest_step=newest_step, seconds=backlog.seconds(now), words=words)


def is_past_collapse(run: Run, judgement: Judgement | None) -> bool:
    """Whether nothing is left to predict: the reward has collapsed, or the run has finished."""
    standing = () if judgement is None else judgement.findings
    return run.state is RunState.FINISHED or any(one.finding == COLLAPSE for one in standing)


def fleet_risk_info(reading: RiskReading | None, *, is_past: bool) -> FleetRiskInfo | None:
    """Return the response for a reading; None without one."""
    if reading is None:
        return None
    file = model_in_use().file
    level, calibration = reading.level(file, is_past=is_past), calibration_words(file)
    return FleetRiskInfo.from_fields(reading, level=level, calibration=calibration)


def _collapse_risk_info(reading: RiskReading | None, *, is_past: bool) -> CollapseRiskInfo | None:
    if reading is None:
        return None
    file = model_in_use().file
    return CollapseRiskInfo.from_fields(
        reading,
        level=reading.level(file, is_past=is_past),
        calibration=calibration_words(file),
        horizon_steps=HORIZON,
        model=file,
        warn_at=file.warn_at,
        page_at=file.page_at,
    )
