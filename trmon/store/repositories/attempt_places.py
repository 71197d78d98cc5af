"""Where the rows of attempts are: the only place that decides whether a read goes to the database or the lake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Engine, func, select, true

from trmon.domain.access import EVERYTHING, Access
from trmon.domain.errors import LakeUnavailable, needs_package
from trmon.store.lake.location import LakeLocation
from trmon.store.rows.batches import StepUpdates
from trmon.store.rows.runs import visible_runs
from trmon.store.schema import tables

if TYPE_CHECKING:
    from trmon.store.lake.history import LakeHistory
    from trmon.store.lake.reader import LakeReader

T = TypeVar("T")
_attempt, _batch, _lake_batch = tables.attempt.c, tables.batch.c, tables.lake_batch.c


@dataclass(frozen=True, slots=True)
class MovedAttempts:
    """Those of a read's attempts that are in the lake; false if there is none."""

    ids: frozenset[int] = frozenset()
    _open: Callable[[], LakeHistory] | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return bool(self.ids)

    @property
    def history(self) -> LakeHistory:
        """Return what the lake has of them. Errors: LakeUnavailable without a configured lake."""
        assert self._open is not None
        return self._open()

    def left_out(self, attempt_id: Column[Any]) -> list[ColumnElement[bool]]:
        """Return the predicates that leave their rows out, which retention may not have deleted yet."""
        return [attempt_id.not_in(self.ids)] if self.ids else []


class AttemptPlaces:
    """Finds which attempts were moved to the lake, which several databases may share; may be used from any thread."""

    def __init__(self, reader: Engine, lake: LakeLocation | None) -> None:
        """Args: lake: it needs the extra `lake` once something is read from it."""
        self._reader = reader
        self._location = lake
        self._lake: LakeReader | None = None
        self._lock = Lock()

    def of_run(
        self, connection: Connection, run_id: int, *, access: Access = EVERYTHING, attempt_id: int | None = None
    ) -> MovedAttempts:
        """Return the moved attempts of a run, or only one of them; none of a run that the caller may not see."""
        is_one = true() if attempt_id is None else _attempt.id == attempt_id
        return self._moved(connection, (_attempt.run_id == run_id) & is_one, access)

    def among(
        self, connection: Connection, attempt_ids: Collection[int], *, access: Access = EVERYTHING
    ) -> MovedAttempts:
        """Return those of some attempts that were moved, and that the caller may see."""
        return self._moved(connection, _attempt.id.in_(attempt_ids), access)

    def read(self, attempt_id: int, *, stored: Callable[[Connection], T], moved: Callable[[LakeHistory], T]) -> T:
        """Read an attempt from the database or the lake; no connection to the database waits for the lake."""
        with self._reader.connect() as connection:
            place = self.among(connection, [attempt_id])
            if not place:
                return stored(connection)
        return moved(place.history)

    def _moved(self, connection: Connection, is_wanted: ColumnElement[bool], access: Access) -> MovedAttempts:
        found = select(_attempt.id, _attempt.lake_batch_id).join(tables.run).where(is_wanted, visible_runs(access))
        rows = connection.execute(found.where(_attempt.lake_batch_id.is_not(None))).all()
        if not rows:
            return MovedAttempts()
        moved_in = {row.id: row.lake_batch_id for row in rows}
        lake_batch = connection.scalars(select(func.max(_lake_batch.id)).where(_lake_batch.moved_at.is_not(None))).one()
        database_id = connection.scalars(select(tables.database_identity.c.id)).one()
        history = partial(self._history, database_id, moved_in=moved_in, lake_batch=lake_batch)
        return MovedAttempts(frozenset(moved_in), history)

    def _history(self, database_id: str, *, moved_in: Mapping[int, int], lake_batch: int) -> LakeHistory:
        """Return what the lake has of attempts. Errors: LakeUnavailable.

        Args: moved_in: the lake batch of each; lake_batch: the newest one of the database, which the lake has.
        """
        if self._location is None:
            raise LakeUnavailable(
                "the run was moved to a lake, but TRMON_LAKE_URL is not set; set it to the lake of this database"
            )
        with needs_package("lake", said="the run was moved to the lake, and reading it needs", error=LakeUnavailable):
            from trmon.store.lake.history import LakeHistory
            from trmon.store.lake.reader import LakeReader
        with self._lock:
            if self._lake is None:
                self._lake = LakeReader(self._location)
        return LakeHistory(self._lake, database_id=database_id, moved_in=moved_in, lake_batch=lake_batch)


def read_steps(
    places: AttemptPlaces, attempt_id: int, *, from_step: int | None = None, to_step: int | None = None, limit: int
) -> list[StepUpdates]:
    """Return the newest steps of an attempt in a range, both ends included, newest first."""

    def stored(connection: Connection) -> list[StepUpdates]:
        # Only an index is read.
        columns = (_batch.step, func.min(_batch.update_index), func.max(_batch.update_index))
        found = select(*columns).where(_batch.attempt_id == attempt_id)
        if from_step is not None:
            found = found.where(_batch.step >= from_step)
        if to_step is not None:
            found = found.where(_batch.step <= to_step)
        newest = found.group_by(_batch.step).order_by(_batch.step.desc()).limit(limit)
        return [StepUpdates(*row) for row in connection.execute(newest)]

    return places.read(
        attempt_id,
        stored=stored,
        moved=lambda lake: lake.steps(attempt_id, from_step=from_step, to_step=to_step, limit=limit),
    )
