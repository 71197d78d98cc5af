"""Notes on runs and steps."""

from __future__ import annotations

from concurrent.futures import Future

from sqlalchemy import delete, func, insert, select

from trmon.domain.access import Access, AuditAction, AuditDocument
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import MAX_NOTES
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Page
from trmon.store.rows.runs import read_run
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction
from trmon_client.api.runs import NoteInfo


class Notes(Repository):
    """Reads and writes notes; a run that the caller may not see counts as missing."""

    def list(self, key: RunKey, *, access: Access, after: str | None = None, limit: int = 50) -> Page[NoteInfo]:
        """Return the notes of a run, newest first. Errors: NotFound; InvalidInput for an invalid cursor."""
        table = tables.note.c
        with self._reader.connect() as connection:
            run = read_run(connection, key, access=access)
        found = select(tables.note).where(table.run_id == run.id)
        return self._page(found, table.id, decode=NoteInfo.from_fields, after=after, limit=limit)

    def add(
        self, key: RunKey, *, access: Access, now: float, author: str, text: str, step: int | None
    ) -> Future[NoteInfo]:
        """Add a note. Errors, from the future: NotFound; Conflict if the run has MAX_NOTES already."""

        def write(transaction: Transaction) -> NoteInfo:
            connection = transaction.connection
            run = read_run(connection, key, access=access)
            count = select(func.count()).select_from(tables.note).where(tables.note.c.run_id == run.id)
            if connection.execute(count).scalar_one() >= MAX_NOTES:
                raise Conflict(f"{key} has {MAX_NOTES} notes already; delete some")
            inserted = insert(tables.note).returning(tables.note)
            row = {"run_id": run.id, "step": step, "author": author, "text": text, "at": now}
            note = NoteInfo.from_fields(connection.execute(inserted, row).one())
            write_audit(connection, access, AuditAction.NOTE_CREATE, key, at=now, after=_document(note))
            return note

        return self._writer.submit(write, run=key)

    def remove(self, key: RunKey, note_id: int, *, access: Access, now: float) -> Future[None]:
        """Delete a note. Errors, from the future: NotFound."""

        def write(transaction: Transaction) -> None:
            connection = transaction.connection
            run = read_run(connection, key, access=access)
            named = (tables.note.c.id == note_id) & (tables.note.c.run_id == run.id)
            row = connection.execute(select(tables.note).where(named)).one_or_none()
            if row is None:
                raise NotFound("note", str(note_id))
            connection.execute(delete(tables.note).where(named))
            before = _document(NoteInfo.from_fields(row))
            write_audit(connection, access, AuditAction.NOTE_DELETE, key, at=now, before=before)

        return self._writer.submit(write, run=key)


def _document(note: NoteInfo) -> AuditDocument:
    return {"note": note.id, "step": note.step, "author": note.author, "text": note.text}
