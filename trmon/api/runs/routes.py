"""Runs: found, listed, changed and deleted."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.pages import After, Limit, PageOut
from trmon.api.runs.schemas import AttemptOut, RunChange, RunOut
from trmon.domain.alerts.owner_change import OwnerChange
from trmon.domain.model.identity import RunKey, checked_name
from trmon.domain.runs.run import Run, RunState
from trmon.notifications.configured_receivers import routes_of

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


async def _named(project: str, run: str) -> RunKey:
    return RunKey.checked(project, run)


Named = Annotated[RunKey, Depends(_named)]
"""The run that a path names."""


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
    return PageOut(items=[_answered(service, run) for run in page.items], next=page.next)


@router.get("/{project}/{run}")
def get_run(key: Named, access: Reader, service: Service) -> RunOut:
    """Return a run."""
    return _answered(service, service.store.runs.get(key, access=access))


@router.get("/{project}/{run}/attempts")
def list_attempts(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> PageOut[AttemptOut]:
    """List the starts of a run's trainer, newest first."""
    run = service.store.runs.get(key, access=access)
    page = service.store.runs.list_attempts(run.id, access=access, after=after, limit=limit)
    return PageOut(items=[AttemptOut.of(attempt) for attempt in page.items], next=page.next)


@router.patch("/{project}/{run}")
def change_run(key: Named, change: RunChange, access: Admin, service: Service) -> RunOut:
    """Tag, archive or rename a run, or give it another owner, whose receivers are notified of what fires."""
    tags = None if change.tags is None else [checked_name(tag, field="tags") for tag in change.tags]
    run = service.store.runs.update(
        key,
        access=access,
        now=time.time(),
        name=change.name,
        tags=tags,
        owner=change.owner,
        archived=change.archived,
        owner_change=_owner_change(service),
    ).result()
    return _answered(service, run)


@router.delete("/{project}/{run}", status_code=204)
def delete_run(key: Named, access: Admin, service: Service) -> None:
    """Delete a run and everything of it, for ever; whoever heard that an alert of it fires hears that it is over."""
    service.store.runs.delete(key, access=access, now=time.time())


def _owner_change(service: Components) -> OwnerChange:
    settings = service.settings
    return OwnerChange(routes=routes_of(settings), public_url=settings.public_url, now=time.time())


def _answered(service: Components, run: Run) -> RunOut:
    return RunOut.of(run, service.view_cache.get(run.id))
