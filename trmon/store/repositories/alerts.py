"""Alerts and their transitions: list, search, count and acknowledge them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, cast, func, select, type_coerce, update
from sqlalchemy.dialects.postgresql import JSON

from trmon.domain.access import Access, AuditAction
from trmon.domain.alerts.alert import INCIDENT_RULE, Acknowledgement, Alert, AlertEvent, AlertState, ListedAlert
from trmon.domain.alerts.delivery import acknowledging_delivery
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.incidents.incident import CAUSE_LABEL, TITLE_LABEL, is_member
from trmon.domain.pipeline.publish import Event
from trmon.domain.severity import Severity
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Page, where_given
from trmon.store.rows.runs import (
    ALERT_MAPPING,
    EVENT_MAPPING,
    decode_deliveries,
    read_acknowledgement,
    visible_runs,
    write_deliveries,
)
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

_alert, _run = tables.alert.c, tables.run.c


def matches(search: str, *, dialect: str) -> ColumnElement[bool]:
    """Return whether an alert has every word in the names of its project, run, owner, rule, title or cause.

    Letters match in both cases; on SQLite, those of ASCII do.
    """
    cause, title = (func.coalesce(_label(name, dialect), "") for name in (CAUSE_LABEL, TITLE_LABEL))
    parts = [_run.project + "/" + _run.name, func.coalesce(_run.owner, ""), _alert.rule, cause, title]
    words = [func.replace(name, "_", " ") for name in (_alert.rule, cause)]
    text = parts[0]
    for part in (*parts[1:], *words):
        text = text + " " + part
    names = func.lower(text)
    return and_(*(names.contains(word, autoescape=True) for word in search.lower().split()))


def _label(name: str, dialect: str) -> ColumnElement[str]:
    """Return a label, which is in an object that is stored as text; NULL without it."""
    labels = type_coerce(_alert.labels, Text)
    return func.json_extract(labels, f"$.{name}") if dialect == "sqlite" else cast(labels, JSON)[name].astext


class Alerts(Repository):
    """Reads alerts and writes acknowledgements."""

    def list(
        self,
        *,
        access: Access,
        project: str | None = None,
        run: str | None = None,
        state: AlertState | None = None,
        severity: Severity | None = None,
        search: str = "",
        after: str | None = None,
        limit: int = 50,
    ) -> Page[ListedAlert]:
        """Return alerts, newest first. Errors: InvalidInput for an invalid cursor.

        Args: search: words that each must have in the names of its project, run, owner, rule, title or cause.
        """
        wanted = {
            _run.project: project,
            _run.name: run,
            _alert.state: state and state.value,
            _alert.severity: severity and severity.value,
        }
        found = where_given(select_listed(access), wanted)
        if search.strip():
            found = found.where(matches(search, dialect=self._reader.dialect.name))
        return self._page(found, _alert.id, decode=listed_alert, after=after, limit=limit)

    def every_firing(self, *, access: Access) -> tuple[ListedAlert, ...]:
        """Return all firing alerts, newest first."""
        found = select_listed(access).where(_alert.state == AlertState.FIRING.value)
        return tuple(map(listed_alert, self._rows(found.order_by(_alert.id.desc()))))

    def firing(self, run_ids: Collection[int], *, access: Access) -> dict[int, tuple[ListedAlert, ...]]:
        """Return the firing alerts of runs by run id, oldest first."""
        found = select_listed(access).where(_alert.run_id.in_(run_ids), _alert.state == AlertState.FIRING.value)
        by_run: dict[int, tuple[ListedAlert, ...]] = dict.fromkeys(run_ids, ())
        for row in self._rows(found.order_by(_alert.id)):
            by_run[row.run_id] = (*by_run[row.run_id], listed_alert(row))
        return by_run

    def newest_incidents(self, run_ids: Collection[int], *, access: Access) -> dict[int, ListedAlert]:
        """Return the newest incident of each run that had one, by run id."""
        newest = (
            select(func.max(_alert.id))
            .where(_alert.run_id.in_(run_ids), _alert.rule == INCIDENT_RULE)
            .group_by(_alert.run_id)
        )
        found = select_listed(access).where(_alert.id.in_(newest))
        return {row.run_id: listed_alert(row) for row in self._rows(found)}

    def members(
        self, incidents: Collection[ListedAlert], *, health_rules: Collection[str]
    ) -> dict[int, tuple[Alert, ...]]:
        """Return the alerts that joined incidents, oldest first, by the id of the incident's alert."""
        if not incidents:
            return {}
        runs = {listed.alert.run_id for listed in incidents}
        oldest = min(listed.alert.since_at for listed in incidents)
        found = select(tables.alert).where(
            _alert.run_id.in_(runs), _alert.rule.in_(health_rules), _alert.updated_at >= oldest
        )
        alerts = list(map(ALERT_MAPPING.from_row, self._rows(found.order_by(_alert.id))))
        return {
            listed.id: tuple(
                alert
                for alert in alerts
                if alert.run_id == listed.alert.run_id
                and alert.state is not AlertState.PENDING
                and is_member(alert, listed.alert, health_rules=health_rules)
            )
            for listed in incidents
        }

    def acknowledge(self, identity: str, ack: Acknowledgement, *, access: Access) -> Future[ListedAlert]:
        """Acknowledge a firing alert; a later acknowledgement replaces an earlier one.

        Errors, from the future: NotFound; Conflict if it is not firing.
        """
        return self._writer.submit(lambda transaction: _acknowledge(transaction, identity, ack, access=access))

    def acknowledge_each(
        self, identities: Sequence[str], ack: Acknowledgement, *, access: Access
    ) -> Future[dict[str, NotFound | Conflict | None]]:
        """Acknowledge firing alerts in one transaction; the future returns the reason of each that was not."""

        def write(transaction: Transaction) -> dict[str, NotFound | Conflict | None]:
            return {identity: _refused(transaction, identity, ack, access=access) for identity in identities}

        return self._writer.submit(write)

    def events(self, identity: str, *, access: Access, after: str | None = None, limit: int = 50) -> Page[AlertEvent]:
        """Return the transitions of an alert's episodes, newest first. Errors: InvalidInput for an invalid cursor."""
        table = tables.alert_event
        found = select(table).join(tables.run).where(table.c.identity == identity, visible_runs(access))
        return self._page(found, table.c.id, decode=EVENT_MAPPING.from_row, after=after, limit=limit)


def select_listed(access: Access) -> Select[Any]:
    """Return a query for the alerts of runs that the caller may see, with the names and owners of the runs."""
    found = select(tables.alert, _run.project, _run.name, _run.owner).join(tables.run)
    return found.where(visible_runs(access))


def listed_alert(row: Any) -> ListedAlert:
    """Return the alert of a row that a query made by `select_listed` finds."""
    run, alert = RunKey(row.project, row.name), ALERT_MAPPING.from_row(row)
    return ListedAlert(id=row.id, run=run, owner=row.owner, alert=alert, ack=read_acknowledgement(row))


def _refused(
    transaction: Transaction, identity: str, ack: Acknowledgement, *, access: Access
) -> NotFound | Conflict | None:
    """Acknowledge an alert; return why it cannot be, which is known before anything is written."""
    try:
        _acknowledge(transaction, identity, ack, access=access)
    except (NotFound, Conflict) as error:
        return error
    return None


def _acknowledge(transaction: Transaction, identity: str, ack: Acknowledgement, *, access: Access) -> ListedAlert:
    found = select_listed(access).where(_alert.identity == identity)
    row = transaction.connection.execute(found.order_by(_alert.id.desc()).limit(1)).one_or_none()
    if row is None:
        raise NotFound("alert", identity)
    if row.state != AlertState.FIRING.value:
        raise Conflict(f"alert {identity!r} is {row.state}; only a firing alert can be acknowledged")
    values = {"acked_by": ack.author, "acked_at": ack.at, "ack_note": ack.note}
    transaction.connection.execute(update(tables.alert).where(_alert.id == row.id).values(**values))
    listed = listed_alert(row)
    write_audit(
        transaction.connection,
        access,
        AuditAction.ALERT_ACKNOWLEDGE,
        identity,
        at=ack.at,
        project=row.project,
        before=None if listed.ack is None else {"author": listed.ack.author, "note": listed.ack.note},
        after={"author": ack.author, "note": ack.note},
    )
    event = Event(kind="ack", data={"identity": identity, "author": ack.author, "note": ack.note}, at=ack.at)
    transaction.events.append((row.run_id, event))
    transaction.edited.add(row.run_id)
    _tell_receivers(transaction, listed.alert, ack)
    return replace(listed, ack=ack)


def _tell_receivers(transaction: Transaction, alert: Alert, ack: Acknowledgement) -> None:
    """Put who has an alert into the outbox, for each receiver that may have been sent the alert."""
    table = tables.delivery
    of_episode = (table.c.run_id == alert.run_id, table.c.episode == alert.episode, table.c.tried_at.is_not(None))
    found = select(table).where(*of_episode, table.c.told_state == AlertState.FIRING.value).order_by(table.c.id)
    sent, _ = decode_deliveries(transaction.connection.execute(found))
    newest = {one.receiver: one for one in sent if one.notification.alert.since_at == alert.since_at}
    deliveries = [acknowledging_delivery(one, ack, now=ack.at) for one in newest.values()]
    write_deliveries(transaction.connection, deliveries)
    transaction.receivers.update(newest)
