"""Delete old notifications that need no more delivery, and silences that ended long ago."""

from __future__ import annotations

from sqlalchemy import Engine, func, or_, select

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import DeliveryState
from trmon.store.rows.alert_rows import alert_from_row
from trmon.store.schema import tables
from trmon.store.writing.batched_delete import delete_in_batches
from trmon.store.writing.group_commit import GroupCommit

DONE = (DeliveryState.DELIVERED.value, DeliveryState.MUTED.value)
DEAD_FACTOR = 3.0
"""Dead deliveries are kept this many times longer: they show which notifications nobody received."""
DEAD_ROWS = 10_000


class NotificationCleanup:
    """Deletes old deliveries and silences in small transactions."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def prune_deliveries(self, *, now: float, max_age_seconds: float) -> int:
        """Delete old deliveries, dead ones later or when there are too many, and return their number.

        Deliveries of a firing alert stay: they determine who gets the resolve notice.
        """
        table = tables.delivery.c
        oldest = now - max_age_seconds
        done = table.state.in_(DONE) & (table.made_at < oldest)
        is_dead = table.state == DeliveryState.DEAD.value
        with self._reader.connect() as connection:
            newest = select(table.id).where(is_dead).order_by(table.id.desc()).offset(DEAD_ROWS).limit(1)
            surplus = connection.scalar(newest) or 0
        dead = is_dead & or_(table.made_at < now - DEAD_FACTOR * max_age_seconds, table.id <= surplus)
        is_closed = func.coalesce(table.episode, "").not_in(self._episodes_firing_since_before(oldest))
        return delete_in_batches(self._writer, tables.delivery, or_(done, dead) & is_closed)

    def prune_silences(self, *, now: float, max_age_seconds: float) -> int:
        """Delete silences that ended long ago and return their number."""
        return delete_in_batches(self._writer, tables.silence, tables.silence.c.ends_at < now - max_age_seconds)

    def _episodes_firing_since_before(self, oldest: float) -> list[str]:
        """Return the episodes that have been firing since before a time."""
        table = tables.alert.c
        found = select(tables.alert).where(table.state == AlertState.FIRING.value, table.since_at < oldest)
        with self._reader.connect() as connection:
            return [alert_from_row(row).episode for row in connection.execute(found)]
