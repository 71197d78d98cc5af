"""Runs: list, read, change and delete them, and the notes on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from trmon.api.alerts import list_alerts
from trmon.api.diagnosis import run_diagnosis
from trmon.api.diagnosis_answer import newest_incident_info
from trmon.api.fleet import fleet_responses
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import MAX_NAMES, After, Limit, Named, RequestBody, split_names
from trmon.api.policies import get_adaptation, list_policy_versions
from trmon.domain.access import Access
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import OwnerChange
from trmon.domain.errors import InvalidInput
from trmon.domain.health.problems import cause_of
from trmon.domain.identity import RunKey, checked_name
from trmon.domain.incidents.incident import leading_alerts
from trmon.domain.runs.run import (
    MAX_AUTHOR_LENGTH,
    MAX_NOTE_LENGTH,
    Run,
    RunState,
    checked_author,
    checked_note_text,
)
from trmon.notify.registry import routes_of
from trmon_client.api.alerts import AlertInfo
from trmon_client.api.answers import ItemPage
from trmon_client.api.diagnosis import IncidentInfo
from trmon_client.api.runs import AttemptInfo, NoteInfo, RunDetails, RunInfo


class RunChange(RequestBody):
    """Changes to a run; omitted fields stay as they are."""

    name: str | None = Field(
        None, description="A new name; a trainer that reports under the old name starts a new run."
    )
    tags: list[str] | None = Field(None, max_length=64, description="In place of all former tags.")
    add_tags: list[str] = Field([], max_length=64, description="In addition to the run's tags.")
    remove_tags: list[str] = Field([], max_length=64, description="A tag that the run does not have is ignored.")
    owner: str | None = Field(None, min_length=1, max_length=128)
    archived: bool | None = None


NEWEST = 200
"""Items of a part of a run, the newest."""

Include = Annotated[
    list[str] | None,
    Query(
        max_length=MAX_NAMES,
        description="Parts to return too: diagnosis, alerts, policies, attempts, notes, adaptation; of each list the "
        f"newest {NEWEST} items.",
    ),
]

SEARCH = "Words that each must be part of the project, run or owner."

router = APIRouter(prefix="/api/v1/runs", tags=["runs"], route_class=AnswerRoute)


@router.get("")
def list_runs(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    state: RunState | None = None,
    tag: Annotated[str | None, Query(max_length=128)] = None,
    owner: Annotated[str | None, Query(max_length=128)] = None,
    archived: bool = False,
    search: Annotated[str, Query(max_length=256, description=SEARCH)] = "",
    after: After = None,
    limit: Limit = 50,
) -> ItemPage[RunInfo]:
    """List runs, newest first."""
    page = service.store.runs.list(
        access=access,
        project=project,
        state=state,
        tag=tag,
        owner=owner,
        archived=archived,
        search=search,
        after=after,
        limit=limit,
    )
    return ItemPage(items=_responses(service, page.items, access=access), next=page.next)


@router.get("/{project}/{run}")
def get_run(key: Named, access: Reader, service: Service, include: Include = None) -> RunDetails:
    """Return a run with its row of the fleet, and with the parts that `include` names."""
    run = service.store.runs.get(key, access=access)
    wanted = split_names(include)
    if unknown := [name for name in wanted if name not in PARTS]:
        raise InvalidInput("include", f"{unknown[0]!r:.64} is not a part of a run; these are: {', '.join(PARTS)}")
    [status] = fleet_responses(service, [run], access=access)
    return RunDetails.from_fields(
        _run_info(run, service, incident=status.incident),
        status=status,
        **{name: PARTS[name](key, access, service) for name in wanted},
    )


@router.get("/{project}/{run}/attempts")
def list_attempts(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> ItemPage[AttemptInfo]:
    """List the attempts of a run, newest first."""
    run = service.store.runs.get(key, access=access)
    page = service.store.runs.list_attempts(run.id, access=access, after=after, limit=limit)
    return ItemPage(items=[AttemptInfo.from_fields(attempt) for attempt in page.items], next=page.next)


@router.patch("/{project}/{run}")
def change_run(key: Named, change: RunChange, access: Admin, service: Service) -> RunInfo:
    """Tag, archive or rename a run, or change its owner; the new owner's receivers get the firing alerts."""
    settings, now = service.settings, time.time()
    run = service.store.runs.update(
        key,
        access=access,
        now=now,
        name=change.name,
        tags=None if change.tags is None else _checked_tags(change.tags, field="tags"),
        add_tags=_checked_tags(change.add_tags, field="add_tags"),
        remove_tags=change.remove_tags,
        owner=change.owner,
        archived=change.archived,
        owner_change=OwnerChange(
            routes=routes_of(settings),
            public_url=settings.public_url,
            now=now,
            health_rules=service.rules.health_rules(),
        ),
    ).result()
    return _responses(service, [run], access=access)[0]


@router.delete("/{project}/{run}", status_code=204)
def delete_run(key: Named, access: Admin, service: Service) -> None:
    """Delete a run with all its data; receivers of its firing alerts are notified that they ended."""
    service.store.runs.delete(key, access=access, now=time.time())


class NoteIn(RequestBody):
    """A new note; without `step` it is on the whole run."""

    text: str = Field(
        min_length=1, max_length=MAX_NOTE_LENGTH, description="Several lines are allowed, other control characters not."
    )
    step: int | None = Field(None, ge=0, lt=1 << 62)
    author: str | None = Field(
        None, min_length=1, max_length=MAX_AUTHOR_LENGTH, description="Defaults to the token's name."
    )


@router.get("/{project}/{run}/notes")
def list_notes(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> ItemPage[NoteInfo]:
    """List the notes of a run and its steps, newest first."""
    page = service.store.notes.list(key, access=access, after=after, limit=limit)
    return ItemPage(items=list(page.items), next=page.next)


@router.post("/{project}/{run}/notes", status_code=201)
def create_note(key: Named, given: NoteIn, access: Admin, service: Service) -> NoteInfo:
    """Write a note on a run, or on one of its steps."""
    return service.store.notes.add(
        key,
        access=access,
        now=time.time(),
        author=access.name if given.author is None else checked_author(given.author),
        text=checked_note_text(given.text),
        step=given.step,
    ).result()


@router.delete("/{project}/{run}/notes/{note_id}", status_code=204)
def delete_note(key: Named, note_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """Delete a note."""
    service.store.notes.remove(key, note_id, access=access, now=time.time()).result()


def _checked_tags(tags: Sequence[str], *, field: str) -> list[str]:
    return [checked_name(tag, field=field) for tag in tags]


def _responses(service: Components, runs: Sequence[Run], *, access: Access) -> list[RunInfo]:
    incidents = service.store.alerts.newest_incidents([run.id for run in runs], access=access)
    return [_run_info(run, service, incident=newest_incident_info(incidents.get(run.id), run)) for run in runs]


def _run_info(run: Run, service: Components, *, incident: IncidentInfo | None) -> RunInfo:
    view = service.view_cache.get(run.id)
    firing = [alert for alert in view.alerts if alert.state is AlertState.FIRING] if view else []
    leading = leading_alerts(firing, health_rules=service.rules.health_rules())
    return RunInfo.from_fields(
        run,
        project=run.key.project,
        run=run.key.run,
        mask_rate=view.signals.get("mask_rate") if view else None,
        firing=[cause_of(alert) for alert in leading],
        incident=incident,
        warnings=run.mistakes,
        end=run.ending if run.state.ended else None,
    )


def _alerts(key: RunKey, access: Access, service: Components) -> list[AlertInfo]:
    of_run = partial(list_alerts, access, service, key.project, key.run, limit=NEWEST)
    firing, after = [], None
    while True:
        page = of_run(AlertState.FIRING, after=after)
        firing += page.items
        after = page.next
        if after is None:
            return firing + of_run(AlertState.RESOLVED).items


PARTS: dict[str, Callable[[RunKey, Access, Components], Any]] = {
    "diagnosis": lambda key, access, service: run_diagnosis(
        service, service.store.runs.get(key, access=access), access=access
    ),
    "alerts": _alerts,
    "policies": lambda key, access, service: list_policy_versions(key, access, service, limit=NEWEST).items,
    "attempts": lambda key, access, service: list_attempts(key, access, service, limit=NEWEST).items,
    "notes": lambda key, access, service: list_notes(key, access, service, limit=NEWEST).items,
    "adaptation": get_adaptation,
}
