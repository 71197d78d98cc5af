"""Routes of runs: list, read, change and delete them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.runs.schemas import AttemptOut, RunChange, RunOut
from trmon.domain.alerts.owner_change import OwnerChange
from trmon.domain.model.access import Access
from trmon.domain.model.identity import RunKey, checked_name
from trmon.domain.runs.run import Run, RunState
from trmon.notifications.configured_receivers import routes_of

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


async def _run_key(project: str, run: str) -> RunKey:
    return RunKey.checked(project, run)


Named = Annotated[RunKey, Depends(_run_key)]
"""The run named by the path."""


@router.get("")
def list_runs(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    state: RunState | None = None,
    tag: Annotated[str | None, Query(max_length=128)] = None,
    owner: Annotated[str | None, Query(max_length=128)] = None,
    archived: bool = False,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[RunOut]:
    """List runs, newest first."""
    page = service.store.runs.list(
        access=access,
        project=project,
        state=state,
        tag=tag,
        owner=owner,
        archived=archived,
        after=after,
        limit=limit,
    )
    return PageOut(items=_responses(service, page.items, access=access), next=page.next)


@router.get("/{project}/{run}")
def get_run(key: Named, access: Reader, service: Service) -> RunOut:
    """Return a run."""
    return _responses(service, [service.store.runs.get(key, access=access)], access=access)[0]


@router.get("/{project}/{run}/attempts")
def list_attempts(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> PageOut[AttemptOut]:
    """List the attempts of a run, newest first."""
    run = service.store.runs.get(key, access=access)
    page = service.store.runs.list_attempts(run.id, access=access, after=after, limit=limit)
    return PageOut(items=[AttemptOut.from_fields(attempt) for attempt in page.items], next=page.next)


@router.patch("/{project}/{run}")
def change_run(key: Named, change: RunChange, access: Admin, service: Service) -> RunOut:
    """Tag, archive or rename a run, or change its owner; the new owner's receivers get the firing alerts."""
    tags = None if change.tags is None else _checked_tags(change.tags, field="tags")
    run = service.store.runs.update(
        key,
        access=access,
        now=time.time(),
        name=change.name,
        tags=tags,
        add_tags=_checked_tags(change.add_tags, field="add_tags"),
        remove_tags=change.remove_tags,
        owner=change.owner,
        archived=change.archived,
        owner_change=_owner_change(service),
    ).result()
    return _responses(service, [run], access=access)[0]


@router.delete("/{project}/{run}", status_code=204)
def delete_run(key: Named, access: Admin, service: Service) -> None:
    """Delete a run with all its data; receivers of its firing alerts are notified that they ended."""
    service.store.runs.delete(key, access=access, now=time.time())


def _checked_tags(tags: Sequence[str], *, field: str) -> list[str]:
    return [checked_name(tag, field=field) for tag in tags]


def _owner_change(service: Components) -> OwnerChange:
    settings = service.settings
    return OwnerChange(
        routes=routes_of(settings),
        public_url=settings.public_url,
        now=time.time(),
        health_rules=service.rules.health_rules(),
    )


def _responses(service: Components, runs: Sequence[Run], *, access: Access) -> list[RunOut]:
    incidents = service.store.alerts.newest_incidents([run.id for run in runs], access=access)
    return [RunOut.of(run, service.view_cache.get(run.id), incident=incidents.get(run.id)) for run in runs]
