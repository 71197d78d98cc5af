"""Notes on runs and steps: list, write and delete them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import After, Limit, Named, RequestBody
from trmon.domain.runs.run import MAX_AUTHOR_LENGTH, MAX_NOTE_LENGTH, checked_author, checked_note_text
from trmon_client.api.answers import ItemPage
from trmon_client.api.runs import NoteInfo


class NoteIn(RequestBody):
    """A new note; without `step` it is on the whole run."""

    text: str = Field(
        min_length=1, max_length=MAX_NOTE_LENGTH, description="Several lines are allowed, other control characters not."
    )
    step: int | None = Field(None, ge=0, lt=1 << 62)
    author: str | None = Field(
        None, min_length=1, max_length=MAX_AUTHOR_LENGTH, description="Defaults to the token's name."
    )


router = APIRouter(prefix="/api/v1/runs/{project}/{run}/notes", tags=["runs"], route_class=AnswerRoute)


@router.get("")
def list_notes(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> ItemPage[NoteInfo]:
    """List the notes of a run and its steps, newest first."""
    page = service.store.notes.list(key, access=access, after=after, limit=limit)
    return ItemPage(items=[NoteInfo.from_fields(note) for note in page.items], next=page.next)


@router.post("", status_code=201)
def create_note(key: Named, given: NoteIn, access: Admin, service: Service) -> NoteInfo:
    """Write a note on a run, or on one of its steps."""
    note = service.store.notes.add(
        key,
        access=access,
        now=time.time(),
        author=access.name if given.author is None else checked_author(given.author),
        text=checked_note_text(given.text),
        step=given.step,
    )
    return NoteInfo.from_fields(note.result())


@router.delete("/{note_id}", status_code=204)
def delete_note(key: Named, note_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """Delete a note."""
    service.store.notes.remove(key, note_id, access=access, now=time.time()).result()
