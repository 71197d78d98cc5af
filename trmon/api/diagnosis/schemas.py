"""Diagnoses in answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.alerts.alert import Alert
from trmon.domain.diagnosis import (
    REMEDIES,
    Diagnosis,
    Escalation,
    Evidence,
    Finding,
    Missing,
    Observation,
    Quadrant,
    Remedy,
    Stage,
)
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import ThresholdSide


class EvidenceOut(BaseModel):
    """A signal beyond its threshold."""

    signal: str
    value: Number = Field(description="The newest value beyond the threshold.")
    bound: ThresholdSide
    threshold: Number
    away_from: float | None = Field(description="The point from which the threshold is a distance; null: it is none.")
    since_step: int

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Return evidence as answered."""
        return cls(
            signal=evidence.signal,
            value=evidence.value,
            bound=evidence.bound,
            threshold=evidence.threshold,
            away_from=evidence.away_from,
            since_step=evidence.since_step,
        )


class MissingOut(BaseModel):
    """A signal that is not known, and what would provide it."""

    signal: str
    provide: str

    @classmethod
    def of(cls, missing: Missing) -> Self:
        """Return a missing signal as answered."""
        return cls(signal=missing.signal, provide=missing.provide)


class RemedyOut(BaseModel):
    """The smallest fix, in words and as options of verl and of TRL's GRPOConfig, and what if it does not help."""

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str

    @classmethod
    def of(cls, remedy: Remedy) -> Self:
        """Return a remedy as answered."""
        return cls(fix=remedy.fix, verl=remedy.verl, trl=remedy.trl, persists=remedy.persists)


class FindingOut(BaseModel):
    """One finding: seen with its evidence, or not known with what is missing."""

    finding: Finding
    title: str
    since_step: int | None
    evidence: list[EvidenceOut]
    missing: list[MissingOut]
    fix: str

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return a finding as answered."""
        return cls(
            finding=observation.finding,
            title=observation.finding.title,
            since_step=observation.since_step,
            evidence=[EvidenceOut.of(item) for item in observation.evidence],
            missing=[MissingOut.of(item) for item in observation.missing],
            fix=REMEDIES[observation.finding].fix,
        )


class EscalationOut(BaseModel):
    """How far correction can go, and why."""

    stage: Stage
    advice: str
    evidence: list[EvidenceOut]
    missing: list[MissingOut]

    @classmethod
    def of(cls, escalation: Escalation) -> Self:
        """Return an escalation as answered."""
        return cls(
            stage=escalation.stage,
            advice=escalation.stage.advice,
            evidence=[EvidenceOut.of(item) for item in escalation.evidence],
            missing=[MissingOut.of(item) for item in escalation.missing],
        )


class QuadrantOut(BaseModel):
    """Which kind of correction can work at all, by tv and chi2."""

    quadrant: Quadrant
    advice: str


class IgnoredOut(BaseModel):
    """A name of a log line that was not read, and why."""

    name: str
    why: str


class CircumstanceOut(BaseModel):
    """What fires on the run itself, which no signal shows: that it is silent, that two trainers live under its name."""

    rule: str
    severity: Severity
    since_step: int
    summary: str
    fix: str

    @classmethod
    def of(cls, alert: Alert) -> Self:
        """Return a firing alert as a diagnosis tells it."""
        return cls(
            rule=alert.rule,
            severity=alert.severity,
            since_step=alert.step,
            summary=alert.summary,
            fix=alert.runbook,
        )


class DiagnosisOut(BaseModel):
    """What is wrong at the newest step. The primary finding is the cause; the others were seen beside it."""

    step: int
    steps: int = Field(description="How many of the newest steps were read.")
    primary: Finding
    title: str
    remedy: RemedyOut | None
    circumstances: list[CircumstanceOut] = Field(
        description="What fires on the run itself: stalled, crashed, two trainers; empty for a log line."
    )
    observed: list[FindingOut] = Field(description="What was found, the cause first.")
    unknown: list[FindingOut] = Field(description="What cannot be told, and the signals that would tell it.")
    shortfall: list[EvidenceOut] = Field(description="Why a run in which nothing was found is not healthy.")
    quadrant: QuadrantOut
    escalation: EscalationOut
    ignored: list[IgnoredOut] = Field(description="Names of a log line that were not read; empty for a run.")

    @classmethod
    def of(
        cls, found: Diagnosis, *, circumstances: Iterable[Alert] = (), ignored: list[IgnoredOut] | None = None
    ) -> Self:
        """Return a diagnosis as answered."""
        return cls(
            step=found.step,
            steps=found.steps,
            primary=found.primary,
            title=found.primary.title,
            remedy=RemedyOut.of(found.remedy) if found.remedy else None,
            circumstances=[CircumstanceOut.of(alert) for alert in circumstances],
            observed=[FindingOut.of(item) for item in found.observed],
            unknown=[FindingOut.of(item) for item in found.unknown],
            shortfall=[EvidenceOut.of(item) for item in found.shortfall],
            quadrant=QuadrantOut(quadrant=found.quadrant, advice=found.quadrant.advice),
            escalation=EscalationOut.of(found.escalation),
            ignored=ignored or [],
        )
