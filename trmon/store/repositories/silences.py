"""Silences; ended ones stay listed, with their authors."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, insert, or_, select, true, update

from trmon.domain.access import Access, AuditAction
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.silences import Matcher, Silence
from trmon.domain.errors import NotFound
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Codec, Page, RowMapping
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

_silence, _delivery = tables.silence.c, tables.delivery.c
_SILENCE = RowMapping(
    Silence,
    codecs={
        "matchers": Codec(
            encode=msgspec.to_builtins, decode=lambda stored: msgspec.convert(stored, tuple[Matcher, ...])
        )
    },
    generated={"id"},
)


class Silences(Repository):
    """Reads and writes silences; a caller with one project only sees and changes that project's."""

    def create(self, silence: Silence, *, access: Access, now: float) -> Future[Silence]:
        """Add a silence; the future returns it with its id."""
        row = _SILENCE.to_row(silence)

        def add(transaction: Transaction) -> Silence:
            inserted = insert(tables.silence).returning(_silence.id)
            added = replace(silence, id=transaction.connection.execute(inserted, row).scalar_one())
            write_audit(
                transaction.connection,
                access,
                AuditAction.SILENCE_CREATE,
                str(added.id),
                at=now,
                project=silence.project,
                after=row,
            )
            return added

        return self._writer.submit(add)

    def list(
        self, *, access: Access, ending_after: float | None = None, after: str | None = None, limit: int = 50
    ) -> Page[Silence]:
        """Return silences, newest first. Errors: InvalidInput for an invalid cursor."""
        found = select(tables.silence).where(_visible(access))
        if ending_after is not None:
            found = found.where(_silence.ends_at > ending_after)
        return self._page(found, _silence.id, decode=_SILENCE.from_row, after=after, limit=limit)

    def active(self, *, now: float) -> tuple[Silence, ...]:
        """Return the silences of all projects that mute alerts now, oldest first."""
        return tuple(map(_SILENCE.from_row, self._rows(_active(now))))

    def expire(self, silence_id: int, *, access: Access, now: float) -> Future[None]:
        """End a silence now, so that held deliveries are checked again; an ended one does not change.

        Errors, from the future: NotFound.
        """
        named = (_silence.id == silence_id) & _visible(access)

        def end(transaction: Transaction) -> None:
            row = transaction.connection.execute(select(tables.silence).where(named)).one_or_none()
            if row is None:
                raise NotFound("silence", str(silence_id))
            write_audit(
                transaction.connection,
                access,
                AuditAction.SILENCE_END,
                str(silence_id),
                at=now,
                project=row.project,
                before={"ends_at": row.ends_at},
                after={"ends_at": min(row.ends_at, now)},
            )
            transaction.connection.execute(
                update(tables.silence).where(named, _silence.ends_at > now).values(ends_at=now)
            )
            held = (_delivery.state == DeliveryState.HELD.value) & (_delivery.due_at > now)
            transaction.connection.execute(update(tables.delivery).where(held).values(due_at=now))

        return self._writer.submit(end)


def read_silences(connection: Connection, *, project: str, now: float) -> tuple[Silence, ...]:
    """Return the active silences for alerts of a project."""
    found = _active(now).where(or_(_silence.project == project, _silence.project.is_(None)))
    return tuple(map(_SILENCE.from_row, connection.execute(found)))


def read_recent_silences(connection: Connection, *, since: float) -> tuple[Silence, ...]:
    """Return the silences of all projects that ended after a time, or have not ended."""
    return tuple(map(_SILENCE.from_row, connection.execute(select(tables.silence).where(_silence.ends_at > since))))


def _active(now: float) -> Select[Any]:
    return select(tables.silence).where(_silence.starts_at <= now, _silence.ends_at > now).order_by(_silence.id)


def _visible(access: Access) -> ColumnElement[bool]:
    return true() if access.project is None else _silence.project == access.project
