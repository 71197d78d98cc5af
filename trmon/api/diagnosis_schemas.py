"""Response schemas of diagnoses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import Alert, AlertState, ListedAlert
from trmon.domain.collapse_risk.risk_model import HORIZON, shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskLevel, RiskReading
from trmon.domain.diagnosis.conditions import Observation
from trmon.domain.diagnosis.diagnosis import Assurance, Diagnosis, Escalation, Quadrant, Stage
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.health.problems import first_action
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.finding import Finding, FindingForm, Severity, meaning_of, title_of
from trmon.domain.rules.condition import ThresholdSide


class IncidentOut(ResponseModel):
    """The newest illness of a run, from its first finding to its end; the first step never changes."""

    finding: str | None = Field(description="The letter of the finding that leads it; null if only symptoms are known.")
    title: str
    cause: str = Field(description="The rule that leads it.")
    severity: Severity = Field(description="The worst so far.")
    since_step: int
    last_good_step: int | None = Field(description="The last step before it; null if it began with the run.")
    state: AlertState = Field(description="firing while it is open, else resolved.")
    opened_at: float
    ended_at: float | None
    ended_with_run: bool = Field(description="Whether it stood when the run finished: the run ended ill.")
    fix: str = Field(description="The first thing to do.")
    identity: str = Field(description="The identity of its alert, to acknowledge it.")
    acked_by: str | None

    @classmethod
    def of(cls, listed: ListedAlert) -> Self:
        """Return the response for the alert that carries an incident."""
        alert, incident = listed.alert, Incident(alert=listed.alert)
        return cls.from_fields(
            incident,
            finding=incident.finding.value if incident.finding is not None else None,
            state=alert.state,
            opened_at=alert.since_at,
            ended_at=None if incident.is_open else alert.updated_at,
            fix=first_action(incident),
            identity=alert.identity,
            acked_by=listed.ack.author if listed.ack else None,
        )

    @classmethod
    def of_newest(cls, listed: ListedAlert | None) -> Self | None:
        """Return the response for a run's newest incident; None without one."""
        return None if listed is None else cls.of(listed)


class RiskDriverOut(ResponseModel):
    """What an input adds to the log-odds of a collapse."""

    input: str
    log_odds: float = Field(description="Below 0 the input speaks against a collapse.")
    words: str = Field(description="The input in words.")


class RiskModelOut(ResponseModel):
    """The model that made the estimate."""

    name: str
    fitted_on: dict[str, Any] = Field(description="On what and how it was fitted.")


class FleetRiskOut(ResponseModel):
    """The risk of a collapse in brief."""

    probability: float
    level: RiskLevel = Field(
        description="How the probability compares with the model's thresholds; past once the reward has collapsed or "
        "the run has finished."
    )
    driven_by: list[str] = Field(description="The inputs that raise it most, in words; at most two.")

    @classmethod
    def of(cls, reading: RiskReading | None, *, is_past: bool) -> Self | None:
        """Return the response for a reading; None without one."""
        if reading is None:
            return None
        return cls.from_fields(reading, level=reading.level(shipped_model().file, is_past=is_past))


class CollapseRiskOut(FleetRiskOut):
    """The probability that a collapse begins within a number of steps, and why: a prediction, not a finding."""

    horizon_steps: int
    drivers: list[RiskDriverOut] = Field(description="What each known input adds, the largest first.")
    missing: list[str] = Field(description="Inputs that the model reads and the run does not send.")
    outside: list[str] = Field(description="Inputs beyond the values of the runs that the model was fitted to.")
    model: RiskModelOut
    warn_at: float = Field(description="The probability that a tenth of the runs without a collapse reached.")
    page_at: float = Field(description="The probability that a twentieth of the runs without a collapse reached.")

    @classmethod
    def of(cls, reading: RiskReading | None, *, is_past: bool) -> Self | None:
        """Return the response for a reading; None without one."""
        if reading is None:
            return None
        file = shipped_model().file
        return cls.from_fields(
            reading,
            level=reading.level(file, is_past=is_past),
            horizon_steps=HORIZON,
            model=RiskModelOut.from_fields(file),
            warn_at=file.warn_at,
            page_at=file.page_at,
        )


class EvidenceOut(ResponseModel):
    """A signal beyond its threshold."""

    signal: str
    value: Number = Field(description="The newest value beyond the threshold.")
    bound: ThresholdSide
    threshold: Number
    away_from: float | None = Field(
        description="The point that the threshold is a distance from; null for an absolute threshold."
    )
    since_step: int
    rules_out: bool = Field(
        False, description="Whether the value is a usual one that excludes another cause; it has no limit to respect."
    )


class MissingOut(ResponseModel):
    """A signal that is unknown, and what would provide it."""

    signal: str
    provide: str
    more_steps: bool = Field(False, description="Whether its inputs are sent, and only more steps are needed.")


class MeasurementOut(ResponseModel):
    """The newest value of a signal that was measured."""

    signal: str
    value: Number


class RemedyOut(ResponseModel):
    """The smallest fix, in words and as options of verl and of TRL's GRPOConfig, and what to do if it does not help.

    Options have the values to set. Those whose values do not follow from the run's configuration are apart, with words
    in place of values, such as `half of what it is`.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str] = Field(default_factory=dict, description="verl's options of what to try next.")
    trl_next: dict[str, str] = Field(default_factory=dict, description="TRL's options of what to try next.")
    verl_in_words: dict[str, str] = Field(default_factory=dict, description="verl's options without known values.")
    trl_in_words: dict[str, str] = Field(default_factory=dict, description="TRL's options without known values.")
    verl_next_in_words: dict[str, str] = Field(default_factory=dict, description="Those of verl to try next.")
    trl_next_in_words: dict[str, str] = Field(default_factory=dict, description="Those of TRL to try next.")


class FindingOut(ResponseModel):
    """A finding: observed with its evidence, or unknown with the signals it lacks."""

    finding: Finding
    form: FindingForm | None = Field(None, description="The side on which it left its range; null if it has no forms.")
    title: str
    since_step: int | None
    evidence: list[EvidenceOut]
    missing: list[MissingOut]
    fix: str

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return the response for an observation."""
        finding = observation.finding
        remedy = remedy_of(finding, observation.form)
        assert remedy is not None
        return cls.from_fields(observation, title=title_of(finding, observation.form), fix=remedy.fix)


class EscalationOut(ResponseModel):
    """The recommended stage of correction, and why."""

    stage: Stage
    advice: str
    evidence: list[EvidenceOut]
    missing: list[MissingOut]

    @classmethod
    def of(cls, escalation: Escalation) -> Self:
        """Return the response for an escalation."""
        return cls.from_fields(escalation, advice=escalation.stage.advice)


class QuadrantOut(ResponseModel):
    """The kind of correction that can work, determined by tv and chi2."""

    quadrant: Quadrant
    advice: str


class IgnoredOut(ResponseModel):
    """A name in a log line that was ignored, and why."""

    name: str
    why: str


class CircumstanceOut(ResponseModel):
    """A firing alert about the run itself rather than its signals, such as a stall or two trainers at once."""

    rule: str
    severity: Severity
    since_step: int
    summary: str
    fix: str

    @classmethod
    def of(cls, alert: Alert) -> Self:
        """Return the response for a firing alert."""
        return cls.from_fields(alert, since_step=alert.step, fix=alert.runbook)


class DiagnosisOut(ResponseModel):
    """What is wrong at the newest step; the primary finding is the cause, the others were observed with it."""

    step: int
    steps: int = Field(description="The number of newest steps that were read.")
    primary: Finding
    form: FindingForm | None = Field(
        None, description="The side on which the primary finding left its range; null if it has no forms."
    )
    title: str
    meaning: str | None = Field(None, description="What the primary finding means, in a sentence; null without one.")
    since_step: int | None = Field(
        None, description="The step at which it began: that of the standing incident, else of the primary finding."
    )
    last_good_step: int | None = Field(None, description="The last step before the standing incident.")
    incident: IncidentOut | None = Field(None, description="The newest incident of the run; null without one.")
    assurance: Assurance = Field(
        Assurance.UNKNOWN, description="What is known of a run without findings; unknown while one stands."
    )
    needs_more_steps: bool = Field(
        False, description="Whether a finding that is not known merely needs more steps: nothing was found so far."
    )
    agreement: list[MeasurementOut] = Field(
        default_factory=list, description="The newest values of signals of how far the policies agree."
    )
    collapse_risk: CollapseRiskOut | None = Field(
        None, description="The risk at the newest step; null in the first 30 steps and without any of its inputs."
    )
    has_ended: bool = Field(False, description="Whether the run has ended, so that the remedy is for the next one.")
    remedy: RemedyOut | None
    circumstances: list[CircumstanceOut] = Field(
        description="Firing alerts about the run itself: stalled, crashed, two trainers; empty for a log line."
    )
    observed: list[FindingOut] = Field(description="The observed findings, the cause first.")
    unknown: list[FindingOut] = Field(description="Findings that cannot be evaluated, and the signals that they lack.")
    shortfall: list[EvidenceOut] = Field(description="Why a run without findings is not healthy.")
    quadrant: QuadrantOut
    escalation: EscalationOut
    ignored: list[IgnoredOut] = Field(description="Names in a log line that were ignored; empty for a run.")
    framework: str | None = Field(None, description="The framework whose names a log has; null for a run.")

    @classmethod
    def of(
        cls,
        diagnosis: Diagnosis,
        *,
        circumstances: Iterable[Alert] = (),
        ignored: list[IgnoredOut] | None = None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        last_good_step: int | None = None,
        standing: Incident | None = None,
        incident: IncidentOut | None = None,
        is_finished: bool = False,
        has_ended: bool = False,
    ) -> Self:
        """Return the response for a diagnosis.

        Args: config, last_good_step: of the run, for the values of the remedy's options; standing: the incident that
        is open, or that stood when the run finished; incident: the newest one; is_finished: whether the run has;
        has_ended: whether it has finished or crashed.
        """
        first = diagnosis.observed[0].since_step if diagnosis.observed else None
        return cls.from_fields(
            diagnosis,
            title=_title(diagnosis, standing),
            meaning=meaning_of(diagnosis.primary, diagnosis.form),
            since_step=first if standing is None else standing.since_step,
            last_good_step=last_good_step,
            incident=incident,
            agreement=[MeasurementOut.from_fields(item) for item in diagnosis.agreement],
            collapse_risk=CollapseRiskOut.of(diagnosis.collapse_risk, is_past=is_finished or diagnosis.has_collapsed),
            has_ended=has_ended,
            remedy=diagnosis.rendered_remedy(config, last_good_step=last_good_step, has_ended=has_ended),
            circumstances=[CircumstanceOut.of(alert) for alert in circumstances],
            observed=[FindingOut.of(item) for item in diagnosis.observed],
            unknown=[FindingOut.of(item) for item in diagnosis.unknown],
            quadrant=QuadrantOut(quadrant=diagnosis.quadrant, advice=diagnosis.quadrant.advice),
            escalation=EscalationOut.of(diagnosis.escalation),
            ignored=ignored or [],
            framework=framework,
        )


def _title(diagnosis: Diagnosis, standing: Incident | None) -> str:
    """Return what is wrong, in words; without a finding, how much is known of the run."""
    if diagnosis.primary is not Finding.UNKNOWN:
        return title_of(diagnosis.primary, diagnosis.form)
    return diagnosis.assurance.value if standing is None else standing.title
