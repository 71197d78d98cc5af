"""Response schemas of the fleet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from pydantic import Field

from trmon.api.collapse_risk.schemas import FleetRiskOut
from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.api.incidents.schemas import IncidentOut
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.health.run_summary import RunSummary
from trmon.domain.health.run_verdict import VerdictInputs, judge_run, urgency_of
from trmon.domain.health.sparkline import DIGITS
from trmon.domain.health.verdict import Urgency, VerdictKind
from trmon.domain.incidents.incident import Incident, notifying_alerts
from trmon.domain.model.finding import Finding
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState


class VerdictOut(ResponseModel):
    """The verdict on a run, and why."""

    # A terminal may read a newer service, which has other kinds.
    kind: VerdictKind | str = Field(union_mode="left_to_right")
    need: Urgency = Field(description="How urgent the run is; none once its alerts are acknowledged.")
    why: str
    since_step: int | None
    todo: str | None = Field(description="The first thing to do; null if no action is needed.")

    @classmethod
    def of(cls, inputs: VerdictInputs, *, acked: frozenset[str], health_rules: Collection[str], now: float) -> Self:
        """Return the response for the verdict on a run."""
        verdict = judge_run(inputs, now=now)
        notifying = notifying_alerts(inputs.alerts, health_rules=health_rules)
        return cls.from_fields(verdict, need=urgency_of(verdict, alerts=notifying, acked=acked))


class OpenAlertOut(ResponseModel):
    """A firing alert of a run, and who acknowledged it."""

    rule: str
    severity: Severity
    step: int
    acked_by: str | None

    @classmethod
    def of(cls, listed: ListedAlert) -> Self:
        """Return the response for an alert."""
        return cls.from_fields(listed.alert, acked_by=listed.ack.author if listed.ack else None)


class SparklineOut(ResponseModel):
    """A signal over the newest steps in a few points; null where the value is unknown."""

    first_step: int
    last_step: int
    values: list[float | None]

    def newest(self) -> Self:
        """Return the same with its newest known value alone, or none."""
        known = [value for value in self.values if value is not None]
        return self.model_copy(update={"values": known[-1:]})


class FleetRunOut(ResponseModel):
    """A run's verdict, open alerts and recent course."""

    project: str
    run: str
    state: RunState
    owner: str | None
    tags: list[str]
    archived: bool
    step: int | None
    last_report_at: float | None
    expected_step_seconds: float | None = Field(description="The median duration of the newest steps.")
    end_phrase: str | None = Field(None, description="How the run ended in a few words, or that no exit was seen.")
    warnings: list[str] = Field([], description="Mistakes in the trainer's calls.")
    judged_step: int | None = Field(
        None,
        description="The newest step of diagnosis, `mask_rate`, `reward` and `kl`; null before the first diagnosis.",
    )
    verdict: VerdictOut
    incident: IncidentOut | None = Field(None, description="The newest incident; null without one.")
    alerts: list[OpenAlertOut] = Field(description="The firing alerts; those of health are symptoms of an incident.")
    mask_rate: Number | None = Field(description="At the newest step.")
    collapse_risk: FleetRiskOut | None = Field(None, description="At the newest step; null in the first 30 steps.")
    reward: SparklineOut | None
    kl: SparklineOut | None = Field(description="`kl_k3` of the primary pair.")

    def brief(self) -> Self:
        """Return the same with the newest values in place of sparklines, and numbers as short as those."""
        return self.model_copy(
            update={
                "reward": self.reward and self.reward.newest(),
                "kl": self.kl and self.kl.newest(),
                "mask_rate": _shortened(self.mask_rate),
                "expected_step_seconds": _shortened(self.expected_step_seconds),
            }
        )

    @classmethod
    def of(
        cls,
        run: Run,
        *,
        alerts: tuple[ListedAlert, ...],
        incident: ListedAlert | None,
        summary: RunSummary | None,
        health_rules: Collection[str],
        now: float,
    ) -> Self:
        """Return the response for a run."""
        expected = summary.expected_step_seconds if summary else None
        inputs = VerdictInputs(
            run=run,
            alerts=[listed.alert for listed in alerts],
            incident=None if incident is None else Incident(alert=incident.alert),
            diagnosis=summary.diagnosis if summary else None,
            expected_step_seconds=expected,
        )
        acked = frozenset(listed.alert.episode for listed in alerts if listed.ack is not None)
        return cls.from_fields(
            run,
            project=run.key.project,
            run=run.key.run,
            step=run.last_step,
            expected_step_seconds=expected,
            warnings=[warning.text for warning in run.warnings],
            judged_step=summary.diagnosis.step if summary else None,
            verdict=VerdictOut.of(inputs, acked=acked, health_rules=health_rules, now=now),
            incident=IncidentOut.of_newest(incident),
            alerts=[OpenAlertOut.of(listed) for listed in alerts if not listed.alert.is_incident],
            mask_rate=summary.mask_rate if summary else None,
            collapse_risk=_collapse_risk(summary, inputs),
            reward=summary.reward if summary else None,
            kl=summary.kl if summary else None,
        )


def _shortened(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _collapse_risk(summary: RunSummary | None, inputs: VerdictInputs) -> FleetRiskOut | None:
    if summary is None:
        return None
    standing = inputs.standing_incident
    has_collapsed = summary.diagnosis.has_collapsed or (
        standing is not None and standing.finding is Finding.REWARD_COLLAPSE
    )
    is_past = has_collapsed or inputs.run.state is RunState.FINISHED
    return FleetRiskOut.of(summary.diagnosis.collapse_risk, is_past=is_past)
