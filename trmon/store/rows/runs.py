"""Runs, their attempts, policies and alerts, as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, case, delete, func, insert, select, true, update

from trmon.domain.access import EVERYTHING, Access
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import Damaged, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Attempt, Run, RunEnding, RunWarning
from trmon.store.database.upsert import by_columns, insert_new, update_rows, upsert
from trmon.store.rows.mapping import Codec, RowMapping
from trmon.store.schema import tables
from trmon_client.core.policies.policy import Policy

_RUN = RowMapping(
    Run,
    composed={"key", "tags"},
    codecs={
        "ending": Codec(encode=msgspec.to_builtins, decode=lambda stored: msgspec.convert(stored, RunEnding | None)),
        "warnings": Codec(
            encode=msgspec.to_builtins, decode=lambda stored: msgspec.convert(stored or (), tuple[RunWarning, ...])
        ),
    },
)
ATTEMPT_MAPPING = RowMapping(Attempt)
POLICY_MAPPING = RowMapping(
    PolicyVersion,
    codecs={
        "policy": Codec(encode=Policy.spec, decode=Policy.parse),
        "shadows": Codec(
            encode=lambda shadows: [shadow.spec() for shadow in shadows],
            decode=lambda specs: tuple(Policy.parse(spec) for spec in specs),
        ),
        "evidence": Codec(encode=dict, decode=dict),
    },
)

_CLAIM = tables.claim.c
_NEWEST_AT = case(
    (_CLAIM.scalars_at > func.coalesce(_CLAIM.reported_at, 0.0), _CLAIM.scalars_at), else_=_CLAIM.reported_at
)
_LAST_REPORT_AT = select(func.max(_NEWEST_AT)).where(_CLAIM.run_id == tables.run.c.id).scalar_subquery()
"""When the newest report or scalars of a run arrived."""


def visible_runs(access: Access) -> ColumnElement[bool]:
    """Return the predicate that the caller may see a run; the statement must read the table `run`."""
    return true() if access.project is None else tables.run.c.project == access.project


def select_runs(access: Access) -> Select[Any]:
    """Return a query for the rows of runs that the caller may see."""
    return select(tables.run, _LAST_REPORT_AT.label("last_report_at")).where(visible_runs(access))


def has_name(key: RunKey) -> ColumnElement[bool]:
    """Return the predicate that a run has a name."""
    return (tables.run.c.project == key.project) & (tables.run.c.name == key.run)


def read_runs(connection: Connection, statement: Select[Any]) -> list[Run]:
    """Return the runs that a query made by `select_runs` finds."""
    rows = connection.execute(statement).all()
    table = tables.run_tag
    query = select(table).where(table.c.run_id.in_([row.id for row in rows])).order_by(table.c.tag)
    tags: dict[int, tuple[str, ...]] = {}
    for tag in connection.execute(query) if rows else ():
        tags[tag.run_id] = (*tags.get(tag.run_id, ()), tag.tag)
    return [run_from_row(row._asdict(), tags=tags.get(row.id, ())) for row in rows]


def run_from_row(row: Mapping[str, Any], *, tags: tuple[str, ...]) -> Run:
    """Return the run of a row that a query made by `select_runs` finds."""
    return _RUN.from_row(row, key=RunKey(row["project"], row["name"]), tags=tags)


def read_run(connection: Connection, run: RunKey | int, *, access: Access = EVERYTHING) -> Run:
    """Return a run by its name or id. Errors: NotFound, also for a run that the caller may not see."""
    is_wanted = has_name(run) if isinstance(run, RunKey) else tables.run.c.id == run
    found = read_runs(connection, select_runs(access).where(is_wanted))
    if not found:
        raise NotFound("run", str(run))
    return found[0]


def update_runs(connection: Connection, changes: Mapping[int, Mapping[str, Any]]) -> None:
    """Update columns of runs by their ids, with one statement for all runs that change the same columns."""
    for rows in by_columns({"id": run_id, **values} for run_id, values in changes.items() if values):
        update_rows(connection, tables.run, rows=rows)


def write_tags(connection: Connection, run_id: int, *, tags: Collection[str] | None) -> None:
    """Replace the tags of a run; None changes nothing."""
    if tags is not None:
        connection.execute(delete(tables.run_tag).where(tables.run_tag.c.run_id == run_id))
    if tags:
        connection.execute(insert(tables.run_tag), [{"run_id": run_id, "tag": tag} for tag in sorted(set(tags))])


def setting_from_document(document: Mapping[str, Any]) -> AdaptationSetting:
    """Return a stored setting of an adaptation. Errors: TypeError, ValueError."""
    return AdaptationSetting(**{**document, "mode": AdaptationMode(document["mode"])})


_UPDATE = {"update": "update_index"}
ALERT_MAPPING = RowMapping(Alert, renamed=_UPDATE)
EVENT_MAPPING = RowMapping(AlertEvent, renamed=_UPDATE)
_NOTIFICATION = Codec(
    encode=lambda notification: notification, decode=lambda document: msgspec.convert(document, Notification)
)
_DELIVERY = RowMapping(
    Delivery, renamed={"notification": "body"}, codecs={"notification": _NOTIFICATION}, generated={"id"}
)


def read_acknowledgement(row: Any) -> Acknowledgement | None:
    """Return who has the alert of a row; None if nobody has."""
    if row.acked_at is None:
        return None
    return Acknowledgement(author=row.acked_by, note=row.ack_note, at=row.acked_at)


def write_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Insert alerts or update the rows of the same episode; a dropped alert never fired, so its row is deleted."""
    stored = [ALERT_MAPPING.to_row(alert) for alert in alerts if alert.state is not AlertState.DROPPED]
    upsert(connection, tables.alert, key=tables.ALERT_KEY, rows=stored)
    for alert in alerts:
        if alert.state is AlertState.DROPPED:
            row = ALERT_MAPPING.to_row(alert)
            is_episode = [tables.alert.c[name] == row[name] for name in tables.ALERT_KEY]
            connection.execute(delete(tables.alert).where(*is_episode))


def clear_acknowledgements(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Clear the acknowledgement of an alert of a clock rule that fires again at the same step: it is a new episode.

    Call it before the alerts themselves are written.
    """
    for event in events:
        if event.state is AlertState.FIRING and event.silence_started_at is not None:
            row = EVENT_MAPPING.to_row(event)
            same_place = [tables.alert.c[name] == row[name] for name in tables.ALERT_KEY]
            earlier = update(tables.alert).where(*same_place, tables.alert.c.since_at != event.at)
            connection.execute(earlier.values(acked_by=None, acked_at=None, ack_note=None))


def write_alert_events(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Insert transitions; one that is already stored does not change."""
    insert_new(connection, tables.alert_event, rows=[EVENT_MAPPING.to_row(event) for event in events])


def write_deliveries(connection: Connection, deliveries: Sequence[Delivery]) -> None:
    """Insert notifications into the outbox; one whose dedup key is already stored is not sent again."""
    insert_new(connection, tables.delivery, rows=[_DELIVERY.to_row(delivery) for delivery in deliveries])


def decode_deliveries(rows: Iterable[Any]) -> tuple[list[Delivery], dict[int, str]]:
    """Return the deliveries of rows, and the error of each delivery whose notification cannot be decoded, by id."""
    deliveries: list[Delivery] = []
    errors: dict[int, str] = {}
    for row in rows:
        try:
            deliveries.append(_DELIVERY.from_row(row))
        except Damaged as error:
            errors[row.id] = str(error)
    return deliveries, errors
