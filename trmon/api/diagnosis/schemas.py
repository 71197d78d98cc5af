"""Response schemas of diagnoses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.api.incidents.schemas import IncidentOut
from trmon.domain.alerts.alert import Alert
from trmon.domain.diagnosis import (
    REMEDIES,
    Assurance,
    Diagnosis,
    Escalation,
    Finding,
    Observation,
    Quadrant,
    Stage,
)
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import ThresholdSide


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

    Options have the values to set, as far as they follow from the run's configuration.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str] = Field(default_factory=dict, description="verl's options of what to try next.")
    trl_next: dict[str, str] = Field(default_factory=dict, description="TRL's options of what to try next.")


class FindingOut(ResponseModel):
    """A finding: observed with its evidence, or unknown with the signals it lacks."""

    finding: Finding
    title: str
    since_step: int | None
    evidence: list[EvidenceOut]
    missing: list[MissingOut]
    fix: str

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return the response for an observation."""
        finding = observation.finding
        return cls.from_fields(observation, title=finding.title, fix=REMEDIES[finding].fix)


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
    ) -> Self:
        """Return the response for a diagnosis.

        Args: config, last_good_step: of the run, for the values of the remedy's options; standing: the incident that
        is open, or that stood when the run finished; incident: the newest one.
        """
        first = diagnosis.observed[0].since_step if diagnosis.observed else None
        return cls.from_fields(
            diagnosis,
            title=_title(diagnosis, standing),
            meaning=diagnosis.primary.meaning,
            since_step=first if standing is None else standing.since_step,
            last_good_step=last_good_step,
            incident=incident,
            agreement=[MeasurementOut.from_fields(item) for item in diagnosis.agreement],
            remedy=diagnosis.rendered_remedy(config, last_good_step=last_good_step),
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
        return diagnosis.primary.title
    return diagnosis.assurance.value if standing is None else standing.title
