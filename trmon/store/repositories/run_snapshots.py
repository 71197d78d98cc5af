"""Read the snapshots of runs in bulk, for processes that have no worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, func, null, or_, select

from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.batches.batch import BatchRow
from trmon.domain.health.judgement import Backlog
from trmon.domain.pipeline.publish import Outlook, RunView
from trmon.domain.policies import PolicyVersion, default_version
from trmon.store.rows.batches import NameDictionary, read_batches
from trmon.store.rows.runs import ALERT_MAPPING, POLICY_MAPPING, read_runs, select_runs
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader

_RUN, _STATE, _REPORT, _NOTICE = tables.run.c, tables.run_state.c, tables.report.c, tables.notice.c
_OLDEST, _NEWEST, _LATER = (tables.report.alias(name) for name in ("oldest", "newest", "later"))
_OLDEST_NOTICE = tables.notice.alias("oldest_notice")
UNREAD = (_REPORT.run_id == _RUN.id) & (_REPORT.id > func.coalesce(_STATE.report_id, 0))
"""The reports of a run that a restart of its judging would read; `UNREAD_NOTICES` are its notices."""
UNREAD_NOTICES = (_NOTICE.run_id == _RUN.id) & (_NOTICE.id > func.coalesce(_STATE.notice_id, 0))


def first_of_run(column: Any, where: ColumnElement[bool], order: Any) -> Any:
    """Return a value of the first row that matches, of a run, its state and its oldest unread report."""
    found = select(column).where(where).order_by(order).limit(1)
    return found.correlate(tables.run, tables.run_state, _OLDEST).scalar_subquery()


def _is_after_oldest(report: Any) -> ColumnElement[bool]:
    return or_(report.c.step > _OLDEST.c.step, report.c.attempt_id != _OLDEST.c.attempt_id)


# The oldest unread reports may be those of an open batch, which wait for the trainer: only the steps after it wait for
# the worker. Runs without any leave after one look at the covering index.
_SINCE = first_of_run(
    _LATER.c.received_at,
    (_LATER.c.run_id == _RUN.id) & (_LATER.c.id > _OLDEST.c.id) & _is_after_oldest(_LATER),
    _LATER.c.id,
)
_WAITING_REPORTS = (
    select(_RUN.id, _NEWEST.c.step, _SINCE.label("since"))
    .select_from(
        tables.run.outerjoin(tables.run_state)
        .join(_OLDEST, _OLDEST.c.id == first_of_run(_REPORT.id, UNREAD, _REPORT.id))
        .join(_NEWEST, _NEWEST.c.id == first_of_run(_REPORT.id, _REPORT.run_id == _RUN.id, _REPORT.id.desc()))
    )
    .where(_is_after_oldest(_NEWEST))
)
_WAITING_NOTICES = select(_RUN.id, null().label("step"), _OLDEST_NOTICE.c.received_at.label("since")).select_from(
    tables.run.outerjoin(tables.run_state).join(
        _OLDEST_NOTICE, _OLDEST_NOTICE.c.id == first_of_run(_NOTICE.id, UNREAD_NOTICES, _NOTICE.id)
    )
)
OPEN_STATES = [AlertState.PENDING.value, AlertState.FIRING.value]
PAGE = 200


class RunSnapshots(Reader):
    """Reads what the service shows of runs."""

    def __init__(self, reader: Engine, *, names: NameDictionary) -> None:
        super().__init__(reader)
        self._names = names

    def active(self, *, since: float) -> list[int]:
        """Return the runs with a report since a time, or created since then."""
        run, claim = tables.run.c, tables.claim.c
        reported = select(claim.run_id).where(or_(claim.reported_at >= since, claim.scalars_at >= since))
        return list(self._values(select(run.id).where(or_(run.created_at >= since, run.id.in_(reported)))))

    def existing(self, run_ids: Collection[int]) -> set[int]:
        """Return which of those runs exist."""
        return set(self._values(select(_RUN.id).where(_RUN.id.in_(run_ids))))

    def outlooks(self, run_ids: Collection[int]) -> defaultdict[int, Outlook]:
        """Return what the workers last stored of runs, by run id; an empty outlook of others."""
        ids = sorted(run_ids)
        found: defaultdict[int, Outlook] = defaultdict(Outlook)
        with self._reader.connect() as connection:
            for first in range(0, len(ids), PAGE):
                stored = _outlooks(connection, ids[first : first + PAGE])
                found.update({run_id: Outlook.read(one) for run_id, one in stored.items()})
        return found

    def backlogs(self, run_ids: Collection[int]) -> dict[int, Backlog]:
        """Return, by run, the messages that wait for the worker; runs without any are left out."""
        ids = sorted(run_ids)
        found: dict[int, Backlog] = {}
        with self._reader.connect() as connection:
            for first in range(0, len(ids), PAGE):
                for query in (_WAITING_REPORTS, _WAITING_NOTICES):
                    for row in connection.execute(query.where(_RUN.id.in_(ids[first : first + PAGE]))):
                        backlog = Backlog(newest_step=row.step, waiting_since=row.since)
                        found[row.id] = backlog.joined(found.get(row.id))
        return found

    def of(self, run_ids: Collection[int], *, now: float) -> list[RunView]:
        """Return the views of those runs that exist, as their workers last wrote them."""
        ids = sorted(run_ids)
        views: list[RunView] = []
        with self._reader.connect() as connection:
            for first in range(0, len(ids), PAGE):
                views += self._read(connection, ids[first : first + PAGE], now=now)
        return views

    def _read(self, connection: Connection, ids: Sequence[int], *, now: float) -> list[RunView]:
        outlooks = _outlooks(connection, ids)
        rows = self._gauge_rows(connection, outlooks)
        policies, alerts = _policies(connection, ids), _alerts(connection, ids)
        runs = read_runs(connection, select_runs(EVERYTHING).where(_RUN.id.in_(ids)))
        return [
            RunView.of(
                outlooks.get(run.id, {}),
                run=run,
                row=rows.get(run.id),
                policy=policies.get(run.id) or default_version(now=run.created_at),
                alerts=alerts.get(run.id, ()),
                updated_at=now,
            )
            for run in runs
        ]

    def _gauge_rows(self, connection: Connection, outlooks: Mapping[int, Mapping[str, Any]]) -> dict[int, BatchRow]:
        table = tables.batch.c
        wanted: list[ColumnElement[bool]] = [
            (table.run_id == run_id) & (table.ordinal == outlook["gauge_ordinal"])
            for run_id, outlook in outlooks.items()
            if outlook["gauge_ordinal"] is not None
        ]
        if not wanted:
            return {}
        found = read_batches(connection, select(tables.batch).where(or_(*wanted)), names=self._names)
        return {row.run_id: row for row in found}


def _outlooks(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    found = select(_STATE.run_id, _STATE.outlook).where(_STATE.run_id.in_(ids), _STATE.outlook.is_not(None))
    return {row.run_id: row.outlook for row in connection.execute(found)}


def _policies(connection: Connection, ids: Sequence[int]) -> dict[int, PolicyVersion]:
    table = tables.policy_version.c
    newest = select(func.max(table.id)).where(table.run_id.in_(ids)).group_by(table.run_id)
    found: Any = connection.execute(select(tables.policy_version).where(table.id.in_(newest)))
    return {row.run_id: POLICY_MAPPING.from_row(row) for row in found}


def _alerts(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[Alert, ...]]:
    table = tables.alert.c
    found = select(tables.alert).where(table.run_id.in_(ids), table.state.in_(OPEN_STATES)).order_by(table.id)
    by_run: dict[int, tuple[Alert, ...]] = {}
    for row in connection.execute(found):
        by_run[row.run_id] = (*by_run.get(row.run_id, ()), ALERT_MAPPING.from_row(row))
    return by_run
