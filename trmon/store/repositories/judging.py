"""How far the judging of a database is: its oldest report that no pass has processed, and the worker's heartbeat."""

from __future__ import annotations

import math
import time
from typing import cast as typed

from sqlalchemy import Double, cast, extract, func, select

from trmon.store.database.engines import Engines
from trmon.store.database.sqlite import beaten_at, record_beat, sqlite_file_of
from trmon.store.repositories.run_snapshots import UNREAD, first_of_run
from trmon.store.schema import tables

# The first report after each frontier, by a covering index alone: the newest part of a backlog is not read.
_FIRST = first_of_run(tables.report.c.received_at, UNREAD, tables.report.c.id)
OLDEST_UNPROCESSED = select(func.min(_FIRST)).select_from(tables.run.outerjoin(tables.run_state))
_NOW = cast(extract("epoch", func.clock_timestamp()), Double)


class JudgingProgress:
    """Reads how far the workers of a database are."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def oldest_unprocessed_at(self) -> float:
        """Return when the oldest report came that a restart of the judging would read; infinity if there is none.

        It includes reports of open batches, which wait for the next step or the end of the grace period.
        """
        with self._engines.reader.connect() as connection:
            oldest = connection.scalar(OLDEST_UNPROCESSED)
        return math.inf if oldest is None else float(oldest)

    def beat_age_seconds(self) -> float | None:
        """Return how long ago any worker made progress, infinity without one; None if no service uses a SQLite file."""
        if not self._engines.is_shared:
            at = beaten_at(sqlite_file_of(self._engines.reader.url))
            return None if at is None else max(0.0, time.time() - at)
        with self._engines.reader.connect() as connection:
            age = connection.scalar(select(_NOW - func.max(tables.worker.c.seen_at)))
        return math.inf if age is None else max(0.0, typed(float, age))

    def record_beat(self, *, age_seconds: float) -> None:
        """Record how long ago the embedded worker made progress, for `beat_age_seconds` of other processes."""
        record_beat(sqlite_file_of(self._engines.reader.url), at=time.time() - age_seconds)
