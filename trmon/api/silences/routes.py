"""Routes of silences: create, list and end them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.silences.schemas import SilenceIn, SilenceOut

router = APIRouter(prefix="/api/v1/silences", tags=["alerts"])


@router.post("", status_code=201)
def create_silence(given: SilenceIn, access: Admin, service: Service) -> SilenceOut:
    """Mute the notifications of matching alerts for a time; the alerts are still recorded and shown."""
    now = time.time()
    silence = given.silence(access=access, now=now)
    return SilenceOut.from_fields(service.store.silences.create(silence, access=access, now=now).result())


@router.get("")
def list_silences(
    access: Reader,
    service: Service,
    ended: Annotated[bool, Query(description="Include silences that have ended.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[SilenceOut]:
    """List the silences that have not ended, newest first."""
    ending_after = None if ended else time.time()
    page = service.store.silences.list(access=access, ending_after=ending_after, after=after, limit=limit)
    return PageOut(items=[SilenceOut.from_fields(silence) for silence in page.items], next=page.next)


@router.delete("/{silence_id}", status_code=204)
def end_silence(silence_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """End a silence now; notifications of alerts that still fire follow within seconds."""
    service.store.silences.expire(silence_id, access=access, now=time.time()).result()
