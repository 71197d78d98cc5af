"""Routes of silences: create, list and end them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.silences.schemas import SilenceIn, SilenceOut, SilencePreviewOut
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.model.access import Access

router = APIRouter(prefix="/api/v1/silences", tags=["alerts"])


@router.post("", status_code=201)
def create_silence(given: SilenceIn, access: Admin, service: Service) -> SilenceOut:
    """Mute the notifications of matching alerts for a time; the alerts are still recorded and shown."""
    now = time.time()
    silence = given.silence(access=access, now=now)
    created = service.store.silences.create(silence, access=access, now=now).result()
    return SilenceOut.of(created, _firing(service, access), now=now)


@router.post("/preview")
def preview_silence(given: SilenceIn, access: Admin, service: Service) -> SilencePreviewOut:
    """List the firing alerts that a silence would mute, and create nothing."""
    return SilencePreviewOut.of(given.silence(access=access, now=time.time()), _firing(service, access))


@router.get("")
def list_silences(
    access: Reader,
    service: Service,
    ended: Annotated[bool, Query(description="Include silences that have ended.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[SilenceOut]:
    """List the silences that have not ended, newest first."""
    now = time.time()
    ending_after = None if ended else now
    page = service.store.silences.list(access=access, ending_after=ending_after, after=after, limit=limit)
    firing = _firing(service, access) if page.items else []
    return PageOut(items=[SilenceOut.of(silence, firing, now=now) for silence in page.items], next=page.next)


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
