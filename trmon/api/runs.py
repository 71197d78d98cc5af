"""Runs: list, read, change and delete them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.diagnosis_schemas import IncidentOut
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.json_numbers import Number
from trmon.api.http.parameters import After, Limit, Named, PageOut
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import AlertState, ListedAlert
from trmon.domain.alerts.owner_change import OwnerChange
from trmon.domain.model.access import Access
from trmon.domain.model.identity import checked_name
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import Run, RunState
from trmon.fleet.views import RunView
from trmon.notify.configured_receivers import routes_of


class RunEndOut(ResponseModel):
    """How a run ended, as its trainer reported it."""

    at: float
    rank: int = Field(description="The rank that reported the end.")
    reason: str = Field(
        description="closed, exited (close() was not called), exception, exit_code or signal; empty from older clients."
    )
    phrase: str
    error: str = Field(description="The exception's type and message, in one line.")
    traceback: str = Field(description="The exception's innermost frames.")
    exit_code: int | None
    signal: str


class RunWarningOut(ResponseModel):
    """A mistake in the trainer's calls, which the client also wrote to stderr."""

    kind: str
    text: str
    at: float


class RunOut(ResponseModel):
    """A run; times are seconds since the epoch on the server's clock."""

    project: str
    run: str
    state: RunState
    owner: str | None
    tags: list[str]
    config: dict[str, Any]
    mode: str
    created_at: float
    last_report_at: float | None
    last_step: int | None
    archived: bool
    mask_rate: Number | None = Field(description="At the newest step; null for an inactive run.")
    firing: list[str] = Field(description="The rules whose alerts fire on the run.")
    incident: IncidentOut | None = Field(None, description="The newest incident; null without one.")
    end: RunEndOut | None = Field(description="Null while the run goes on, and where no exit was seen.")
    end_phrase: str | None = Field(description="How the run ended in a few words, or that no exit was seen.")
    warnings: list[RunWarningOut]

    @classmethod
    def of(cls, run: Run, view: RunView | None, *, incident: ListedAlert | None = None) -> Self:
        """Return the response for a run, with its view if it is active, and its newest incident."""
        firing = [alert for alert in view.alerts if alert.state is AlertState.FIRING] if view else []
        return cls.from_fields(
            run,
            project=run.key.project,
            run=run.key.run,
            mask_rate=view.signals.get("mask_rate") if view else None,
            firing=[alert.rule for alert in firing if not alert.is_incident],
            incident=IncidentOut.of_newest(incident),
            end=RunEndOut.from_fields(run.ending) if run.ending is not None and run.state.ended else None,
            warnings=[RunWarningOut.from_fields(warning) for warning in run.warnings],
        )


class AttemptOut(ResponseModel):
    """One start of a run's trainer."""

    id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: int | None = Field(description="The attempt that this one branched from; null for none.")
    fork_reason: Resolution | None = Field(
        description="Why: two_trainers reported at once under one name, the trainer went_back in steps, or that "
        "attempt had moved to the lake."
    )
    ranks_unverified: bool


class RunChange(BaseModel):
    """Changes to a run; omitted fields stay as they are."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(
        None, description="A new name; a trainer that reports under the old name starts a new run."
    )
    tags: list[str] | None = Field(None, max_length=64, description="In place of all former tags.")
    add_tags: list[str] = Field([], max_length=64, description="In addition to the run's tags.")
    remove_tags: list[str] = Field([], max_length=64, description="A tag that the run does not have is ignored.")
    owner: str | None = Field(None, min_length=1, max_length=128)
    archived: bool | None = None


router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


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
