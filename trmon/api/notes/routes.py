"""Routes of notes: list, write and delete them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.notes.schemas import NoteIn, NoteOut
from trmon.api.runs.routes import Named
from trmon.domain.runs.run_note import checked_author, checked_note_text

router = APIRouter(prefix="/api/v1/runs/{project}/{run}/notes", tags=["runs"])


@router.get("")
def list_notes(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> PageOut[NoteOut]:
    """List the notes of a run and its steps, newest first."""
    page = service.store.notes.list(key, access=access, after=after, limit=limit)
    return PageOut(items=[NoteOut.from_fields(note) for note in page.items], next=page.next)


@router.post("", status_code=201)
def create_note(key: Named, given: NoteIn, access: Admin, service: Service) -> NoteOut:
    """Write a note on a run, or on one of its steps."""
    note = service.store.notes.add(
        key,
        access=access,
        now=time.time(),
        author=access.name if given.author is None else checked_author(given.author),
        text=checked_note_text(given.text),
        step=given.step,
    )
    return NoteOut.from_fields(note.result())


@router.delete("/{note_id}", status_code=204)
def delete_note(key: Named, note_id: Annotated[int, Path(ge=0, lt=1 << 62)], access: Admin, service: Service) -> None:
    """Delete a note."""
    service.store.notes.remove(key, note_id, access=access, now=time.time()).result()
