"""The fleet in answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.health.run_verdict import Urgency, VerdictInputs, VerdictKind, judge_run, urgency_of
from trmon.domain.health.sparkline import Sparkline
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState
from trmon.store.repositories.alerts import ListedAlert
from trmon.views.run_summaries import RunSummary


class VerdictOut(BaseModel):
    """What a run is judged to be, and why."""

    kind: VerdictKind
    need: Urgency = Field(description="How soon somebody should look; none once its alerts are acknowledged.")
    why: str
    since_step: int | None
    todo: str | None = Field(description="What to do about it first; null where nobody must do anything.")

    @classmethod
    def of(cls, standing: VerdictInputs, *, acked: frozenset[str], now: float) -> Self:
        """Return the verdict on a run as answered."""
        found = judge_run(standing, now=now)
        need = urgency_of(found, alerts=standing.alerts, acked=acked)
        return cls(kind=found.kind, need=need, why=found.why, since_step=found.since_step, todo=found.todo)


class OpenAlertOut(BaseModel):
    """One alert that fires on a run, and who has taken it up."""

    rule: str
    severity: Severity
    step: int
    acked_by: str | None

    @classmethod
    def of(cls, listed: ListedAlert) -> Self:
        """Return an alert as answered."""
        alert, ack = listed.alert, listed.ack
        return cls(rule=alert.rule, severity=alert.severity, step=alert.step, acked_by=ack.author if ack else None)


class SparklineOut(BaseModel):
    """A signal over the newest steps in a few points; null where nothing is known."""

    first_step: int
    last_step: int
    values: list[float | None]

    @classmethod
    def of(cls, line: Sparkline) -> Self:
        """Return a sparkline as answered."""
        return cls(first_step=line.first_step, last_step=line.last_step, values=list(line.values))


class FleetRunOut(BaseModel):
    """One run at a glance: the verdict, its open alerts, and how it went lately."""

    project: str
    run: str
    state: RunState
    owner: str | None
    tags: list[str]
    step: int | None
    last_report_at: float | None
    expected_step_seconds: float | None = Field(description="The median of its newest steps.")
    verdict: VerdictOut
    alerts: list[OpenAlertOut]
    mask_rate: Number | None = Field(description="Of the newest step.")
    reward: SparklineOut | None
    kl: SparklineOut | None = Field(description="kl_k3 of the primary pair.")

    @classmethod
    def of(cls, run: Run, *, alerts: tuple[ListedAlert, ...], glance: RunSummary | None, now: float) -> Self:
        """Return a run as answered."""
        expected = glance.expected_step_seconds if glance else None
        standing = VerdictInputs(
            run=run,
            alerts=[listed.alert for listed in alerts],
            diagnosis=glance.diagnosis if glance else None,
            expected_step_seconds=expected,
        )
        acked = frozenset(listed.alert.episode for listed in alerts if listed.ack is not None)
        return cls(
            project=run.key.project,
            run=run.key.run,
            state=run.state,
            owner=run.owner,
            tags=list(run.tags),
            step=run.last_step,
            last_report_at=run.last_report_at,
            expected_step_seconds=expected,
            verdict=VerdictOut.of(standing, acked=acked, now=now),
            alerts=[OpenAlertOut.of(listed) for listed in alerts],
            mask_rate=glance.mask_rate if glance else None,
            reward=SparklineOut.of(glance.reward) if glance else None,
            kl=SparklineOut.of(glance.kl) if glance else None,
        )
