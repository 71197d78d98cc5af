"""The fleet: many runs in one response, each with its verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from msgspec.structs import replace

from trmon.api.diagnosis_answer import behind_info, newest_incident_info, risk_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Limit, split_run_keys
from trmon.domain.access import Access
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.health.judgement import Backlog
from trmon.domain.health.problems import cause_of, title_of_alert
from trmon.domain.pipeline.publish import DIGITS
from trmon.domain.runs.run import Run
from trmon.fleet.verdicts import JudgedRun
from trmon_client.api.answers import ApiNumber, ItemPage
from trmon_client.api.diagnosis import FleetRiskInfo
from trmon_client.api.runs import OpenAlertInfo, RunStatus, SparklineInfo, VerdictInfo


def _shortened(value: float | None) -> ApiNumber | None:
    return None if value is None else ApiNumber(f"{value:.{DIGITS}g}")


router = APIRouter(prefix="/api/v1/fleet", tags=["runs"], route_class=AnswerRoute)

MAX_NAMED = 60


@router.get("")
def list_fleet(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    archived: bool = False,
    brief: Annotated[bool, Query(description="Short numbers, the newest `reward` and `kl`, no `judged_at`.")] = False,
    after: After = None,
    limit: Limit = 100,
) -> ItemPage[RunStatus]:
    """List runs with their verdict, open alerts and recent course, newest run first."""
    page = service.store.runs.list(access=access, project=project, archived=archived, after=after, limit=limit)
    found = fleet_responses(service, page.items, access=access)
    return ItemPage(items=[_brief(one) for one in found] if brief else found, next=page.next)


@router.get("/named")
def list_named_fleet_runs(
    access: Reader,
    service: Service,
    runs: Annotated[list[str], Query(description=f"At most {MAX_NAMED} runs as PROJECT/RUN.")],
) -> list[RunStatus]:
    """List runs by their names, as the fleet lists them; names that are not found are left out."""
    keys = split_run_keys(runs)
    if len(keys) > MAX_NAMED:
        raise InvalidInput("runs", f"has {len(keys)} runs; at most {MAX_NAMED} are allowed")
    return fleet_responses(service, service.store.runs.named(keys, access=access), access=access)


def fleet_responses(service: Components, runs: Sequence[Run], *, access: Access) -> list[RunStatus]:
    """Return the responses for runs, in their order."""
    now = time.time()
    judged = service.verdicts.of(runs, access=access, now=now)
    backlogs = service.store.run_snapshots.backlogs([run.id for run in runs])
    return [_run_status(run, judged[run.id], backlogs.get(run.id), now=now) for run in runs]


def _newest_alone(line: SparklineInfo | None) -> SparklineInfo | None:
    """Return a sparkline with its newest known value alone, or none."""
    if line is None:
        return None
    known = tuple(value for value in line.values if value is not None)
    return replace(line, values=known[-1:])


def _brief(status: RunStatus) -> RunStatus:
    """Return the same with the newest values in place of sparklines, short numbers, and no time of judging."""
    return replace(
        status,
        judged_at=None,
        reward=_newest_alone(status.reward),
        kl=_newest_alone(status.kl),
        mask_rate=_shortened(status.mask_rate),
        expected_step_seconds=_shortened(status.expected_step_seconds),
    )


KL_RANGE = builtin_catalogue().ranges["kl_k3"]


def _run_status(run: Run, judged: JudgedRun, backlog: Backlog | None, *, now: float) -> RunStatus:
    judgement, summary = judged.outlook.judgement, judged.outlook.summary
    return RunStatus.from_fields(
        run,
        project=run.key.project,
        run=run.key.run,
        step=run.last_step,
        expected_step_seconds=judged.outlook.expected_step_seconds,
        warnings=[warning.text for warning in run.mistakes],
        judged_step=judgement.place.step if judgement else None,
        judged_at=judgement.at if judgement else None,
        behind=behind_info(backlog, judgement, now=now),
        verdict=VerdictInfo.from_fields(judged.verdict, need=judged.need, counts_as=judged.counts_as),
        incident=newest_incident_info(judged.newest, run),
        alerts=[
            OpenAlertInfo.from_fields(
                one.alert,
                rule=cause_of(one.alert),
                title=title_of_alert(one.alert),
                step=one.alert.since_step,
                acked_by=one.ack.author if one.ack else None,
            )
            for one in judged.alerts
        ],
        mask_rate=summary.mask_rate,
        collapse_risk=risk_info(FleetRiskInfo, summary.collapse_risk, run=run, judgement=judgement),
        reward=summary.reward,
        kl=SparklineInfo.from_fields(summary.kl, healthy_most=KL_RANGE.most) if summary.kl else None,
    )
