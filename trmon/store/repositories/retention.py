"""Retention: reports by age and bytes, events by age and count, what was told by age; batches stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import BigInteger, Engine, case, func, or_, select

from trmon.store.repositories.notification_cleanup import NotificationCleanup
from trmon.store.schema import tables
from trmon.store.writing.batched_delete import delete_in_batches
from trmon.store.writing.group_commit import GroupCommit

EVENT_SECONDS = 24 * 3600.0
EVENT_ROWS = 100_000
PATIENCE = "1h"
"""How long PostgreSQL may add up what all reports take: with tens of millions it takes longer than anybody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows a pruning deleted."""

    reports: int
    events: int
    deliveries: int
    silences: int


class Retention:
    """Deletes what is too old or too much, oldest first, in small transactions."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer
        self._bygones = NotificationCleanup(reader, writer)

    def prune(
        self,
        *,
        now: float,
        max_age_seconds: float,
        max_bytes_per_run: int,
        max_bytes: int,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> Pruned:
        """Delete reports beyond an age, a run's bytes or all bytes, whichever comes first, and what is old of the rest.

        Only reports that their run's worker is done with are deleted.
        Args: goes_on: asked before each small transaction; what is left when it says no stays for another time.
        """
        oldest, table = now - max_age_seconds, tables.report.c
        reports = 0
        for run_id, last_old, last_surplus in self._cutoffs(
            oldest, max_bytes_per_run=max_bytes_per_run, max_bytes=max_bytes
        ):
            # Each by its own age: a clock that was behind for a moment makes one report old, not those before it.
            old = (table.id <= last_old) & (table.received_at < oldest)
            beyond = (table.run_id == run_id) & (old | (table.id <= last_surplus))
            reports += delete_in_batches(self._writer, tables.report, beyond, goes_on=goes_on)
        return Pruned(
            reports=reports,
            events=self._prune_events(now, goes_on=goes_on),
            deliveries=self._bygones.prune_deliveries(now=now, max_age_seconds=max_age_seconds),
            silences=self._bygones.prune_silences(now=now, max_age_seconds=max_age_seconds),
        )

    def _cutoffs(self, oldest: float, *, max_bytes_per_run: int, max_bytes: int) -> list[tuple[int, int, int]]:
        """Return each run that has reports to delete, with the newest that is too old and the newest that is too much.

        An id of 0 is that of none.
        """
        table, state = tables.report.c, tables.run_state.c
        newest_first, n_bytes = table.id.desc(), func.sum(table.payload_bytes, type_=BigInteger)
        sized = select(
            table.run_id,
            table.id,
            table.received_at,
            n_bytes.over(partition_by=table.run_id, order_by=newest_first).label("run_bytes"),
            n_bytes.over(order_by=newest_first).label("all_bytes"),
        ).subquery()
        old = sized.c.received_at < oldest
        surplus = or_(sized.c.run_bytes > max_bytes_per_run, sized.c.all_bytes > max_bytes)
        done_with = sized.c.id <= state.report_id
        cutoffs = (
            select(sized.c.run_id, *(func.max(case((which, sized.c.id), else_=0)) for which in (old, surplus)))
            .join(tables.run_state, state.run_id == sized.c.run_id)
            .where(or_(old, surplus), done_with)
            .group_by(sized.c.run_id)
        )
        with self._reader.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{PATIENCE}'")
            return [(row[0], row[1], row[2]) for row in connection.execute(cutoffs)]

    def _prune_events(self, now: float, *, goes_on: Callable[[], bool]) -> int:
        table = tables.event.c
        with self._reader.connect() as connection:
            last_id = connection.scalar(select(func.max(table.id))) or 0
        old = or_(table.at < now - EVENT_SECONDS, table.id <= last_id - EVENT_ROWS)
        return delete_in_batches(self._writer, tables.event, old, goes_on=goes_on)
