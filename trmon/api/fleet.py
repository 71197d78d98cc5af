"""The fleet: many runs in one response, each with its verdict."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import Field

from trmon.api.diagnosis_schemas import FleetRiskOut, IncidentOut
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.json_numbers import Number
from trmon.api.http.parameters import After, Limit, Named, PageOut, split_run_keys
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.health.run_summary import DIGITS, RunSummary
from trmon.domain.health.verdict import Urgency, VerdictInputs, VerdictKind, judge_run, urgency_of
from trmon.domain.incidents.incident import Incident, notifying_alerts
from trmon.domain.model.access import Access
from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.finding import Finding, Severity
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


router = APIRouter(prefix="/api/v1/fleet", tags=["runs"])

MAX_NAMED = 60


@router.get("")
def list_fleet(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    archived: bool = False,
    brief: Annotated[bool, Query(description="Only the newest value of `reward` and `kl`, and short numbers.")] = False,
    after: After = None,
    limit: Limit = 100,
) -> PageOut[FleetRunOut]:
    """List runs with their verdict, open alerts and recent course, newest run first."""
    page = service.store.runs.list(access=access, project=project, archived=archived, after=after, limit=limit)
    found = fleet_responses(service, page.items, access=access)
    return PageOut(items=[one.brief() for one in found] if brief else found, next=page.next)


@router.get("/named")
def list_named_fleet_runs(
    access: Reader,
    service: Service,
    runs: Annotated[
        str, Query(max_length=16_384, description=f"At most {MAX_NAMED} runs as PROJECT/RUN, separated by commas.")
    ],
) -> list[FleetRunOut]:
    """List runs by their names, as the fleet lists them; names that are not found are left out."""
    keys = split_run_keys(runs)
    if len(keys) > MAX_NAMED:
        raise InvalidInput("runs", f"has {len(keys)} runs; at most {MAX_NAMED} are allowed")
    return fleet_responses(service, service.store.runs.named(keys, access=access), access=access)


@router.get("/{project}/{run}")
def get_fleet_run(key: Named, access: Reader, service: Service) -> FleetRunOut:
    """Return a run with its verdict, open alerts and recent course."""
    return fleet_responses(service, [service.store.runs.get(key, access=access)], access=access)[0]


def fleet_responses(service: Components, runs: Sequence[Run], *, access: Access) -> list[FleetRunOut]:
    """Return the responses for runs, in their order."""
    now = time.time()
    alerts = service.store.alerts.firing([run.id for run in runs], access=access)
    incidents = service.store.alerts.newest_incidents([run.id for run in runs], access=access)
    summaries = service.summaries.of(runs, access=access, now=now)
    health_rules = service.rules.health_rules()
    return [
        FleetRunOut.of(
            run,
            alerts=alerts[run.id],
            incident=incidents.get(run.id),
            summary=summaries.get(run.id),
            health_rules=health_rules,
            now=now,
        )
        for run in runs
    ]
