"""Runs: find, list, change and delete them; a deletion or a new name is sent to the receivers of their alerts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace

from msgspec import structs
from sqlalchemy import Connection, Engine, delete, exists, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from trmon.domain.access import Access, AuditAction, AuditDocument
from trmon.domain.alerts.alert import AlertState, TransitionReason
from trmon.domain.alerts.delivery import Delivery, DeliveryState, OwnerChange, closing_delivery
from trmon.domain.errors import Conflict, InvalidInput, NotFound, nearest_names
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import Attempt, Run, RunState
from trmon.store.lake.deletions import ask_for_deletion
from trmon.store.registry import RunRegistry
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Page, decode_cursor, page_of, where_given
from trmon.store.rows.runs import (
    ALERT_MAPPING,
    ATTEMPT_MAPPING,
    decode_deliveries,
    read_run,
    read_runs,
    select_runs,
    update_runs,
    visible_runs,
    write_deliveries,
    write_tags,
)
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit, delete_in_batches
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction
from trmon_client.core.wire.codec import MAX_TAGS

IN_FLIGHT_SECONDS = 15.0
"""How long the first attempt of a delivery may be in flight, possibly from another process."""


MOST_COMPARED = 2000
"""The newest runs among which a name that does not exist is looked for."""
_run, _attempt, _alert, _delivery = tables.run.c, tables.attempt.c, tables.alert.c, tables.delivery.c


def notify_of_deletion(transaction: Transaction, run_id: int, *, now: float) -> None:
    """Send a resolve notice to every receiver that may know a firing alert of a run, before the run is deleted.

    Waiting resolve notices stay in the outbox without their run; firing alerts get a new one.
    """
    deliveries = _alert_deliveries(transaction, run_id)
    notified = _notified(deliveries)
    notices = [one for one in deliveries if _is_resolve_notice(one) and _subject(one) in notified]
    waiting = [one for one in notices if one.state in (DeliveryState.DUE, DeliveryState.HELD)]
    stays = {"run_id": None, "state": DeliveryState.DUE.value}
    kept = update(tables.delivery).where(_delivery.id.in_([one.id for one in waiting]))
    transaction.connection.execute(kept.values(**stays))
    transaction.receivers.update(one.receiver for one in waiting)
    _resolve(transaction, _open(deliveries), reason=TransitionReason.DELETED, now=now)


def notify_of_rename(transaction: Transaction, run_id: int, *, name: str, now: float) -> None:
    """Send a resolve notice under the old name and the alert under the new name to every receiver that may know it.

    Receivers identify alerts by the run's name, so without the resolve notice the old incident would stay open.
    """
    notified = _open(_alert_deliveries(transaction, run_id))
    _resolve(transaction, notified, reason=TransitionReason.RENAMED, now=now)
    for one in notified:
        run = structs.replace(one.notification.run, run=name)
        notification = structs.replace(one.notification, run=run)
        again = {"body": notification, "state": DeliveryState.STANDING.value, "due_at": now}
        transaction.connection.execute(update(tables.delivery).where(_delivery.id == one.id).values(**again))


def _alert_deliveries(transaction: Transaction, run_id: int) -> list[Delivery]:
    found = (
        select(tables.delivery).where(_delivery.run_id == run_id, _delivery.episode.is_not(None)).order_by(_delivery.id)
    )
    deliveries, _ = decode_deliveries(transaction.connection.execute(found))
    return deliveries


def _notified(deliveries: Sequence[Delivery]) -> dict[tuple[str, str | None], Delivery]:
    """Return the firing notifications that may have arrived, by receiver and episode."""
    return {_subject(one): one for one in deliveries if _may_have_arrived(one)}


def _open(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the newest notification of each receiver and alert that may have arrived and has no resolve notice."""
    ended = {_subject(one) for one in deliveries if _is_resolve_notice(one)}
    return [one for subject, one in _notified(deliveries).items() if subject not in ended]


def _resolve(transaction: Transaction, notified: Sequence[Delivery], *, reason: TransitionReason, now: float) -> None:
    notices = [_resolve_notice(one, reason=reason, now=now) for one in notified]
    write_deliveries(transaction.connection, notices)
    transaction.receivers.update(one.receiver for one in notices)


def _resolve_notice(notified: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    was_tried = notified.attempts > 0 or notified.rounds > 0
    notice = closing_delivery(notified, reason=reason, now=now)
    return notice if was_tried else replace(notice, due_at=now + IN_FLIGHT_SECONDS)


def _is_resolve_notice(one: Delivery) -> bool:
    return one.told_state is AlertState.RESOLVED


def _may_have_arrived(one: Delivery) -> bool:
    was_tried = one.attempts > 0 or one.rounds > 0
    return one.told_state is AlertState.FIRING and (was_tried or one.state is DeliveryState.DUE)


def _subject(one: Delivery) -> tuple[str, str | None]:
    return one.receiver, one.episode


class Runs(Repository):
    """Reads and writes runs; a run that the caller may not see counts as missing."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry) -> None:
        super().__init__(reader, writer)
        self._registry = registry

    def get(self, key: RunKey, *, access: Access) -> Run:
        """Return a run. Errors: NotFound, with the nearest names of the newest runs that the caller may see."""
        with self._reader.connect() as connection:
            try:
                return read_run(connection, key, access=access)
            except NotFound:
                raise NotFound("run", str(key), nearest=_nearest(connection, key, access)) from None

    def by_id(self, run_id: int) -> Run:
        """Return a run. Errors: NotFound."""
        with self._reader.connect() as connection:
            return read_run(connection, run_id)

    def named(self, keys: Collection[RunKey], *, access: Access) -> list[Run]:
        """Return runs by their names, newest first; those that are not found are left out."""
        names = [(key.project, key.run) for key in keys]
        statement = select_runs(access).where(tuple_(_run.project, _run.name).in_(names))
        with self._reader.connect() as connection:
            return read_runs(connection, statement.order_by(_run.id.desc()))

    def attempts(self, run_id: int) -> list[Attempt]:
        """Return a run's attempts, oldest first."""
        found = select(tables.attempt).where(_attempt.run_id == run_id).order_by(_attempt.ordinal)
        return list(map(ATTEMPT_MAPPING.from_row, self._rows(found)))

    def list_attempts(self, run_id: int, *, access: Access, after: str | None = None, limit: int = 50) -> Page[Attempt]:
        """Return a run's attempts, newest first. Errors: InvalidInput for an invalid cursor."""
        found = select(tables.attempt).join(tables.run).where(_attempt.run_id == run_id, visible_runs(access))
        return self._page(found, _attempt.ordinal, decode=ATTEMPT_MAPPING.from_row, after=after, limit=limit)

    def list(
        self,
        *,
        access: Access,
        project: str | None = None,
        state: RunState | None = None,
        tag: str | None = None,
        owner: str | None = None,
        archived: bool = False,
        search: str = "",
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Run]:
        """Return runs, newest first. Errors: InvalidInput for an invalid cursor.

        Args: search: words that each must have in the names of its project, run or owner.
        """
        wanted = {_run.project: project, _run.state: state and state.value, _run.owner: owner}
        statement = where_given(select_runs(access).where(_run.archived == archived), wanted)
        names = func.lower(_run.project + "/" + _run.name + " " + func.coalesce(_run.owner, ""))
        statement = statement.where(*(names.contains(word, autoescape=True) for word in search.lower().split()))
        if tag is not None:
            tags = tables.run_tag.c
            statement = statement.where(exists().where(tags.run_id == _run.id, tags.tag == tag))
        if after is not None:
            statement = statement.where(_run.id < decode_cursor(after))
        with self._reader.connect() as connection:
            runs = read_runs(connection, statement.order_by(_run.id.desc()).limit(limit + 1))
        return page_of(runs, limit=limit, key=lambda run: run.id)

    def update(
        self,
        key: RunKey,
        *,
        access: Access,
        now: float,
        name: str | None = None,
        tags: Collection[str] | None = None,
        add_tags: Collection[str] = (),
        remove_tags: Collection[str] = (),
        owner: str | None = None,
        archived: bool | None = None,
        owner_change: OwnerChange | None = None,
    ) -> Future[Run]:
        """Change the given values in one transaction.

        Args: name: a new name in the run's project. A trainer that still sends under the old name starts a new run.
            Receivers get a resolve notice for firing alerts under the old name, and the alerts again under the new one.
            tags: in place of all former tags; add_tags and remove_tags change single ones, whatever others there are.
            owner_change: if given, the receivers of a new owner are notified of firing alerts.
        Errors: InvalidInput; from the future: NotFound, Conflict for a taken name.
        """
        renamed = key if name is None else RunKey.checked(key.project, name)
        given = {"owner": owner, "archived": archived}
        values = {column: value for column, value in given.items() if value is not None}

        def change(transaction: Transaction) -> Run:
            first = before = read_run(transaction.connection, key, access=access)
            if renamed != key:
                before = self._rename(transaction, before, renamed, now=now)
            update_runs(transaction.connection, {before.id: values})
            changed_tags = _changed_tags(before.tags if tags is None else tags, add=add_tags, remove=remove_tags)
            write_tags(transaction.connection, before.id, tags=changed_tags)
            transaction.mark_edited(before.id)
            changed = read_run(transaction.connection, renamed, access=access)
            if owner_change is not None and changed.owner != before.owner:
                firing = select(tables.alert).where(
                    _alert.run_id == changed.id, _alert.state == AlertState.FIRING.value
                )
                alerts = list(map(ALERT_MAPPING.from_row, transaction.connection.execute(firing.order_by(_alert.id))))
                deliveries = owner_change.deliveries(alerts, before=before, after=changed)
                write_deliveries(transaction.connection, deliveries)
                transaction.receivers.update(delivery.receiver for delivery in deliveries)
            write_audit(
                transaction.connection,
                access,
                AuditAction.RUN_CHANGE,
                first.key,
                at=now,
                before=_document(first),
                after=_document(changed),
            )
            return changed

        return self._writer.submit(change, run=key)

    def _rename(self, transaction: Transaction, run: Run, key: RunKey, *, now: float) -> Run:
        try:
            update_runs(transaction.connection, {run.id: {"name": key.run}})
        except IntegrityError as error:
            raise Conflict(f"run {str(key)!r} already exists; choose another name") from error
        notify_of_rename(transaction, run.id, name=key.run, now=now)
        self._registry.forget()
        return replace(run, key=key)

    def delete(self, key: RunKey, *, access: Access, now: float, is_audited: bool = True) -> None:
        """Delete a run and all its rows in small transactions, and return when it is gone. Errors: NotFound.

        Receivers of its firing alerts get a resolve notice.
        Args: is_audited: whether the audit log records it, with the last transaction.
        """
        run = self.get(key, access=access)
        self._writer.submit(lambda transaction: ask_for_deletion(transaction.connection, run, now=now)).result()
        for table in (tables.report, tables.notice, tables.batch, tables.event):
            delete_in_batches(self._writer, table, table.c.run_id == run.id)
        for attempt in self.attempts(run.id):
            for table in (tables.decision, tables.signal_chunk):
                delete_in_batches(self._writer, table, table.c.attempt_id == attempt.id)

        def delete_run(transaction: Transaction) -> None:
            if is_audited:
                before = _document(run)
                write_audit(transaction.connection, access, AuditAction.RUN_DELETE, run.key, at=now, before=before)
            # Again: an attempt may have begun to move meanwhile.
            ask_for_deletion(transaction.connection, run, now=now)
            self._delete_run(transaction, run.id, now=now)

        self._writer.submit(delete_run, run=run.key).result()

    def _delete_run(self, transaction: Transaction, run_id: int, *, now: float) -> None:
        notify_of_deletion(transaction, run_id, now=now)
        transaction.connection.execute(delete(tables.run).where(_run.id == run_id))
        transaction.discard_events(run_id)
        transaction.edited.add(run_id)
        self._registry.forget()
        self._registry.last_seen.pop(run_id, None)


def _changed_tags(tags: Collection[str], *, add: Collection[str], remove: Collection[str]) -> Collection[str]:
    if both := sorted({*add} & {*remove}):
        raise InvalidInput("remove_tags", f"{both[0]!r} is in add_tags too; give it in one of them")
    changed = {*tags, *add} - {*remove}
    if add and len(changed) > MAX_TAGS:
        raise InvalidInput("add_tags", f"would make {len(changed)} tags; a run has at most {MAX_TAGS}")
    return changed


def _document(run: Run) -> AuditDocument:
    return {"name": run.key.run, "owner": run.owner, "tags": sorted(run.tags), "archived": run.archived}


def _nearest(connection: Connection, key: RunKey, access: Access) -> list[str]:
    """Return the runs whose names are most similar to that of a run, two at most, those of its project first."""
    newest = select(_run.project, _run.name).where(visible_runs(access)).order_by(_run.id.desc()).limit(MOST_COMPARED)
    rows = connection.execute(newest).all()
    near = nearest_names(key.run, {row.name for row in rows})
    found = sorted(
        (row for row in rows if row.name in near), key=lambda row: (row.project != key.project, near.index(row.name))
    )
    return [f"{row.project}/{row.name}" for row in found[:2]]
