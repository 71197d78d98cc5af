"""Tests notes: listed newest first, limited in number."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from tests.store.builders import CODE, NOW, begin, execute, paged
from trmon.domain.access import EVERYTHING, AuditAction
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import MAX_NOTES, RunNote
from trmon.store import Store
from trmon.store.schema import tables

GRPO = RunKey("math", "grpo")


def add(store: Store, text: str, *, step: int | None = None) -> RunNote:
    """Add a note to math/grpo."""
    return store.notes.add(GRPO, access=EVERYTHING, now=NOW, author="ana", text=text, step=step).result()


@pytest.mark.usefixtures("run_id")
def test_notes_are_listed_newest_first_in_pages(store: Store) -> None:
    notes = [add(store, f"note {number}", step=number or None) for number in range(3)]
    assert paged(store.notes.list, GRPO, limit=2) == notes[::-1]
    assert [note.step for note in notes] == [None, 1, 2]


def test_a_note_is_deleted_once_and_the_audit_log_keeps_its_text(store: Store) -> None:
    begin(store, "math/grpo", "math/other")
    note = add(store, "lr raised", step=7)
    with pytest.raises(NotFound, match="no note"):
        store.notes.remove(RunKey("math", "other"), note.id, access=EVERYTHING, now=NOW).result()
    store.notes.remove(GRPO, note.id, access=EVERYTHING, now=NOW).result()
    with pytest.raises(NotFound, match="no note"):
        store.notes.remove(GRPO, note.id, access=EVERYTHING, now=NOW).result()
    deleted, created = store.audit.list(access=EVERYTHING).items
    document = {"note": note.id, "step": 7, "author": "ana", "text": "lr raised"}
    assert (created.action, created.before, created.after) == (AuditAction.NOTE_CREATE, None, document)
    assert (deleted.action, deleted.before, deleted.after) == (AuditAction.NOTE_DELETE, document, None)
    assert (created.target, created.project) == ("math/grpo", "math")


@pytest.mark.usefixtures("run_id")
def test_notes_of_another_project_are_not_found(store: Store) -> None:
    note = add(store, "mine")
    with pytest.raises(NotFound):
        store.notes.list(GRPO, access=CODE)
    with pytest.raises(NotFound):
        store.notes.add(GRPO, access=CODE, now=NOW, author="eve", text="yours", step=None).result()
    with pytest.raises(NotFound):
        store.notes.remove(GRPO, note.id, access=CODE, now=NOW).result()
    assert store.notes.list(GRPO, access=EVERYTHING).items == (note,)


def test_a_run_has_a_limited_number_of_notes(store: Store, run_id: int) -> None:
    row = {"run_id": run_id, "step": None, "author": "ana", "text": "x", "at": NOW}
    rows = [row] * (MAX_NOTES - 1)
    execute(store, insert(tables.note), rows)
    add(store, "the last one")
    with pytest.raises(Conflict, match="has 1000 notes already"):
        add(store, "one more")
