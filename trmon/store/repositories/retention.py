"""Retention: delete reports by age and size, and old events, deliveries, silences and audit; batches stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import BigInteger, case, false, func, or_, select

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import DeliveryState
from trmon.store.lake.deletions import waits_for_lake
from trmon.store.rows.runs import ALERT_MAPPING
from trmon.store.schema import tables
from trmon.store.writing.group_commit import delete_in_batches
from trmon.store.writing.repository import Repository

DONE = (DeliveryState.DELIVERED.value, DeliveryState.MUTED.value)
DEAD_FACTOR = 3.0
"""Dead deliveries are kept this many times longer: they show which notifications were not received."""
DEAD_ROWS = 10_000


EVENT_SECONDS = 24 * 3600.0
EVENT_ROWS = 100_000
SIZE_QUERY_TIMEOUT = "1h"
"""PostgreSQL's statement timeout for adding up the sizes of reports, which may be tens of millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The number of rows that a call deleted."""

    reports: int
    events: int
    deliveries: int
    silences: int
    audit: int


class Retention(Repository):
    """Deletes rows above the limits, oldest first, in small transactions."""

    def prune(
        self,
        *,
        now: float,
        max_age_seconds: float,
        max_bytes_per_run: int,
        max_bytes: int,
        max_audit_age_seconds: float = math.inf,
        keeps_for_lake: bool = False,
        may_continue: Callable[[], bool] = lambda: True,
    ) -> Pruned:
        """Delete reports above a maximum age, size per run or total size, and old events, deliveries and silences.

        Reports that their run's worker has not finished with stay.
        Args: keeps_for_lake: whether reports that are still to move to the lake stay, whatever the limits;
        may_continue: called before each transaction; when it returns False, the remaining rows stay.
        """
        oldest, table = now - max_age_seconds, tables.report.c
        reports = 0
        for run_id, last_old, last_surplus in self._cutoffs(
            oldest, max_bytes_per_run=max_bytes_per_run, max_bytes=max_bytes, keeps_for_lake=keeps_for_lake
        ):
            # The age of each report counts: a clock that was wrong for a moment affects only that moment's reports.
            old = (table.id <= last_old) & (table.received_at < oldest)
            beyond = (table.run_id == run_id) & (old | (table.id <= last_surplus))
            if keeps_for_lake:
                beyond &= ~waits_for_lake()
            reports += delete_in_batches(self._writer, tables.report, beyond, may_continue=may_continue)
        return Pruned(
            reports=reports,
            events=self._prune_events(now, may_continue=may_continue),
            deliveries=self._prune_deliveries(now=now, max_age_seconds=max_age_seconds),
            silences=delete_in_batches(self._writer, tables.silence, tables.silence.c.ends_at < oldest),
            audit=delete_in_batches(
                self._writer,
                tables.audit,
                tables.audit.c.at < now - max_audit_age_seconds,
                may_continue=may_continue,
            ),
        )

    def _cutoffs(
        self, oldest: float, *, max_bytes_per_run: int, max_bytes: int, keeps_for_lake: bool
    ) -> list[tuple[int, int, int]]:
        """Return the runs with reports to delete: run id, newest report that is too old, newest above a size limit.

        The report id is 0 if there is none.
        """
        table, state = tables.report.c, tables.run_state.c
        newest_first, n_bytes = table.id.desc(), func.sum(table.payload_bytes, type_=BigInteger)
        sized = select(
            table.run_id,
            table.id,
            table.received_at,
            n_bytes.over(partition_by=table.run_id, order_by=newest_first).label("run_bytes"),
            n_bytes.over(order_by=newest_first).label("all_bytes"),
            (waits_for_lake() if keeps_for_lake else false()).label("waits"),
        ).subquery()
        old = sized.c.received_at < oldest
        surplus = or_(sized.c.run_bytes > max_bytes_per_run, sized.c.all_bytes > max_bytes)
        done_with = sized.c.id <= state.report_id
        cutoffs = (
            select(sized.c.run_id, *(func.max(case((which, sized.c.id), else_=0)) for which in (old, surplus)))
            .join(tables.run_state, state.run_id == sized.c.run_id)
            .where(or_(old, surplus), done_with, ~sized.c.waits)
            .group_by(sized.c.run_id)
        )
        with self._reader.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{SIZE_QUERY_TIMEOUT}'")
            return [(row[0], row[1], row[2]) for row in connection.execute(cutoffs)]

    def _prune_events(self, now: float, *, may_continue: Callable[[], bool]) -> int:
        table = tables.event.c
        last_id = self._values(select(func.max(table.id)))[0] or 0
        old = or_(table.at < now - EVENT_SECONDS, table.id <= last_id - EVENT_ROWS)
        return delete_in_batches(self._writer, tables.event, old, may_continue=may_continue)

    def _prune_deliveries(self, *, now: float, max_age_seconds: float) -> int:
        """Delete old deliveries, dead ones later or when there are too many, and return their number.

        Deliveries of a firing alert stay: they determine who gets the resolve notice.
        """
        table = tables.delivery.c
        oldest = now - max_age_seconds
        done = table.state.in_(DONE) & (table.made_at < oldest)
        is_dead = table.state == DeliveryState.DEAD.value
        newest = select(table.id).where(is_dead).order_by(table.id.desc()).offset(DEAD_ROWS).limit(1)
        surplus = next(iter(self._values(newest)), 0)
        dead = is_dead & or_(table.made_at < now - DEAD_FACTOR * max_age_seconds, table.id <= surplus)
        alert = tables.alert.c
        found = select(tables.alert).where(alert.state == AlertState.FIRING.value, alert.since_at < oldest)
        firing = [ALERT_MAPPING.from_row(row).episode for row in self._rows(found)]
        is_closed = func.coalesce(table.episode, "").not_in(firing)
        return delete_in_batches(self._writer, tables.delivery, or_(done, dead) & is_closed)
