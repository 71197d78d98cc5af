"""The diagnosis of a run or of a log, the run's incident and its risk as the service answers them; without FastAPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from trmon.domain.alerts.alert import Alert, AlertState, ListedAlert
from trmon.domain.collapse_risk.risk_model import HORIZON, model_in_use
from trmon.domain.collapse_risk.risk_reading import RiskReading, calibration_words
from trmon.domain.findings.configuration import is_imported
from trmon.domain.findings.judge import Place
from trmon.domain.findings.remedies import framework_of_config, how_to_measure, remedy
from trmon.domain.findings.sentences import evidence_words, headline, illness_words, words_of_signal
from trmon.domain.findings.verdict import COLLAPSE, Course, Found, Judgement, words_of
from trmon.domain.health.judgement import Backlog
from trmon.domain.health.problems import first_action
from trmon.domain.health.runbook import answers_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.runs.run import Run, RunState, SavedCheckpoint
from trmon_client.api.diagnosis import (
    BehindInfo,
    CircumstanceInfo,
    CollapseRiskInfo,
    CourseInfo,
    DiagnosisInfo,
    EvidenceInfo,
    FindingInfo,
    FleetRiskInfo,
    IncidentInfo,
    OutOfRangeInfo,
    RemedyInfo,
    UnmeasuredInfo,
)

Risk = TypeVar("Risk", bound=FleetRiskInfo)


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
        collapse_risk=risk_info(CollapseRiskInfo, risk, run=run, judgement=judgement),
        answers=answers,
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


def risk_info(kind: type[Risk], reading: RiskReading | None, *, run: Run, judgement: Judgement | None) -> Risk | None:
    """Return the response for a reading, in brief or with its drivers and its model; None without one."""
    if reading is None:
        return None
    file, standing = model_in_use().file, () if judgement is None else judgement.findings
    # Nothing is left to predict once the reward has collapsed or the run has finished.
    is_past = run.state is RunState.FINISHED or any(one.finding == COLLAPSE for one in standing)
    return kind.from_fields(
        reading,
        level=reading.level(file, is_past=is_past),
        calibration=calibration_words(file),
        horizon_steps=HORIZON,
        model=file,
        warn_at=file.warn_at,
        page_at=file.page_at,
    )


def judgement_info(
    judgement: Judgement,
    *,
    framework: str | None,
    config: Mapping[str, Any],
    has_ended: bool = False,
    is_log: bool = False,
    checkpoints: Sequence[SavedCheckpoint] | None = None,
    **fields: object,
) -> DiagnosisInfo:
    """Return the answer for a judgement.

    Args: framework: of the run's options or of the log's names; config: of the run, for the values of the remedy's
    options; checkpoints: that its trainer has reported, None of a log; is_log: whether it is of a trainer's log,
    imported or not; fields: what the answer has besides the judgement.
    """
    since, last_good, lead = judgement.since, judgement.last_good, judgement.lead
    found = lead and remedy(
        lead.remedy,
        framework=framework,
        config=config,
        last_good_step=_step(last_good),
        has_ended=has_ended,
        checkpoints=checkpoints,
    )
    return DiagnosisInfo.from_fields(
        judgement,
        step=judgement.place.step,
        attempt=judgement.place.attempt,
        sentence=words_of(judgement),
        since_step=_step(since),
        since_attempt=_attempt(since),
        last_good_step=_step(last_good),
        last_good_attempt=_attempt(last_good),
        findings=[
            _finding_info(one, steps=illness_words(judgement) if one is lead else headline(one))
            for one in judgement.findings
        ],
        over=[_finding_info(one, steps=headline(one)) for one in judgement.over],
        outside=[OutOfRangeInfo.from_fields(out, words=words_of_signal(out.signal)) for out in judgement.outside],
        reward=None if judgement.reward is None else _course_info(judgement.reward),
        changed=[_course_info(course) for course in judgement.changed],
        unmeasured=list(_unmeasured(judgement, framework=framework, is_log=is_log)),
        remedy=found and RemedyInfo.from_fields(found),
        has_ended=has_ended,
        framework=framework,
        **fields,
    )


def _finding_info(found: Found, *, steps: str) -> FindingInfo:
    """Return the answer for a finding. Args: steps: its title and steps; of one that leads, those of the illness."""
    return FindingInfo.from_fields(
        found,
        headline=steps,
        since_step=found.since.step,
        since_attempt=found.since.attempt,
        found_step=found.found.step,
        beyond_step=_step(found.beyond),
        last_good_step=_step(found.last_good),
        last_good_attempt=_attempt(found.last_good),
        ended_step=_step(found.ended),
        evidence=[EvidenceInfo.from_fields(item, words=evidence_words(item)) for item in found.evidence],
    )


def _course_info(course: Course) -> CourseInfo:
    return CourseInfo.from_fields(course, words=words_of_signal(course.signal))


def _unmeasured(judgement: Judgement, *, framework: str | None, is_log: bool) -> Iterator[UnmeasuredInfo]:
    lacking = {
        "agreement": not judgement.measures_agreement,
        "reward": judgement.reward is None,
        "training": not judgement.measures_training,
    }
    for what, is_lacking in lacking.items():
        if is_lacking and judgement.rows and not judgement.counts_no_token:
            yield UnmeasuredInfo(what=what, how=how_to_measure(what, framework=framework, from_log=is_log))


def _step(place: Place | None) -> int | None:
    return None if place is None else place.step


def _attempt(place: Place | None) -> int | None:
    return None if place is None else place.attempt
