"""Silences: create, list and end them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Author, Limit, RequestBody
from trmon.domain.access import Access, Scope
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.alerts.silences import MAX_PATTERN_LENGTH, Matcher, MatchOperator, Silence, check_matchers
from trmon.domain.health.problems import title_of_alert
from trmon.domain.identity import checked_name
from trmon_client.api.alerts import CoveredAlertInfo, SilenceInfo, SilencePreviewInfo
from trmon_client.api.answers import ItemPage

MAX_PREVIEWED = 100
MAX_SECONDS = 366 * 86_400.0


class MatcherIO(RequestBody):
    """A condition on a label: project, run, owner, rule, severity, or a label of the rule."""

    label: str = Field(max_length=MAX_PATTERN_LENGTH)
    operator: MatchOperator = Field(MatchOperator.EQUAL, description="`~` and `!~` take shell patterns, e.g. `qwen*`.")
    value: str = Field(max_length=MAX_PATTERN_LENGTH)


class SilenceIn(RequestBody):
    """A new silence; it applies to alerts that all of its matchers match."""

    project: str | None = Field(None, description="Mute only this project; by default all that the caller may see.")
    matchers: list[MatcherIO] = Field(min_length=1)
    seconds: float = Field(gt=0, le=MAX_SECONDS, description="The duration.")
    starts_at: float | None = Field(None, ge=0, allow_inf_nan=False, description="The start time; defaults to now.")
    author: Author = None
    note: str = Field("", max_length=2000)

    def silence(self, *, access: Access, now: float) -> Silence:
        """Return the silence. Errors: InvalidInput; Forbidden for another project."""
        access.require(Scope.ADMIN, project=self.project)
        project = access.project if self.project is None else checked_name(self.project, field="project")
        starts_at = now if self.starts_at is None else self.starts_at
        return Silence(
            id=0,
            project=project,
            matchers=check_matchers(tuple(Matcher(**matcher.model_dump()) for matcher in self.matchers)),
            author=access.signed(self.author),
            note=self.note,
            starts_at=starts_at,
            ends_at=starts_at + self.seconds,
        )


def covered(silence: Silence, firing: Sequence[ListedAlert], *, now: float) -> list[ListedAlert]:
    """Return the alerts that a silence mutes."""
    return [one for one in firing if silence.covers(one.alert, run=one.run, owner=one.owner, now=now)]


router = APIRouter(prefix="/api/v1/silences", tags=["alerts"], route_class=AnswerRoute)


@router.post("", status_code=201)
def create_silence(given: SilenceIn, access: Admin, service: Service) -> SilenceInfo:
    """Mute the notifications of matching alerts for a time; the alerts are still recorded and shown."""
    now = time.time()
    silence = given.silence(access=access, now=now)
    created = service.store.silences.create(silence, access=access, now=now).result()
    return _silence_info(created, _firing(service, access), now=now)


@router.post("/preview")
def preview_silence(given: SilenceIn, access: Admin, service: Service) -> SilencePreviewInfo:
    """List the firing alerts that a silence would mute, and create nothing."""
    silence = given.silence(access=access, now=time.time())
    alerts = covered(silence, _firing(service, access), now=silence.starts_at)
    items = [
        CoveredAlertInfo.from_fields(
            one.alert, project=one.run.project, run=one.run.run, title=title_of_alert(one.alert)
        )
        for one in alerts[:MAX_PREVIEWED]
    ]
    return SilencePreviewInfo(total=len(alerts), items=tuple(items))


@router.get("")
def list_silences(
    access: Reader,
    service: Service,
    ended: Annotated[bool, Query(description="Include silences that have ended.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> ItemPage[SilenceInfo]:
    """List the silences that have not ended, newest first."""
    now = time.time()
    ending_after = None if ended else now
    page = service.store.silences.list(access=access, ending_after=ending_after, after=after, limit=limit)
    firing = _firing(service, access) if page.items else []
    return ItemPage(items=[_silence_info(silence, firing, now=now) for silence in page.items], next=page.next)


@router.delete("/{silence_id}", status_code=204)
def end_silence(silence_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """End a silence now; notifications of alerts that still fire follow within seconds."""
    service.store.silences.expire(silence_id, access=access, now=time.time()).result()


def _firing(service: Components, access: Access) -> list[ListedAlert]:
    """Return the firing incidents, and the alerts that joined none."""
    firing = service.store.alerts.every_firing(access=access)
    incidents = [one for one in firing if one.alert.is_incident]
    joined = service.store.alerts.members(incidents, health_rules=service.rules.health_rules())
    identities = {member.identity for members in joined.values() for member in members}
    return [one for one in firing if one.alert.identity not in identities]


def _silence_info(silence: Silence, firing: Sequence[ListedAlert], *, now: float) -> SilenceInfo:
    return SilenceInfo.from_fields(silence, alerts=len(covered(silence, firing, now=now)))
