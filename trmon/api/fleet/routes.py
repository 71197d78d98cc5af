"""Routes of the fleet: runs with their verdicts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from trmon.api.fleet.schemas import FleetRunOut
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.http.run_keys import split_run_keys
from trmon.api.runs.routes import Named
from trmon.domain.model.access import Access
from trmon.domain.model.errors import InvalidInput
from trmon.domain.runs.run import Run

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
