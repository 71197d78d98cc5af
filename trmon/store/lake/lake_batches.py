"""Lake batches in the database: plan the next one, read the planned one, and mark one as moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Select, and_, case, exists, func, insert, not_, select, update

from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import LockSpace
from trmon.store.database.upsert import insert_new
from trmon.store.lake.lake_member import LAKE_MEMBER_MAPPING, LakeBatch
from trmon.store.lake.movable_attempts import late_attempts, message_bounds, movable_attempts, moved_up_to
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

BATCH_BYTES = 256 << 20
"""Maximum report bytes of a lake batch, unless one attempt alone has more."""
BATCH_ATTEMPTS = 200
_batch, _member, _attempt = tables.lake_batch.c, tables.lake_batch_attempt.c, tables.attempt.c


@dataclass(slots=True)
class _Plan:
    """The members of the next batch as rows, and their size."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    n_reports: int = 0
    n_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeStatus:
    """What has moved to the lake, and what waits for it.

    `moved_bytes` are those of reports; `moved_at` is the time of the newest move. `due_attempts` can move now,
    `ended_attempts` too once their runs have been idle for long enough, `late_attempts` have messages that came after
    their move. `planned_batch` has begun and is not complete.
    """

    moved_attempts: int
    moved_batches: int
    moved_bytes: int
    moved_at: float | None
    due_attempts: int
    ended_attempts: int
    late_attempts: int
    planned_batch: int | None
    pending_deletions: int


class LakeBatches:
    """Plans lake batches, one at a time: the next is planned once the former has moved."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry) -> None:
        self._reader = reader
        self._writer = writer
        self._registry = registry

    def database_id(self) -> str:
        """Return the identity of the database in a lake of several."""
        with self._reader.connect() as connection:
            return _database_id(connection)

    def newest_id(self) -> int:
        """Return the number of the newest lake batch; 0 without one."""
        with self._reader.connect() as connection:
            return connection.scalar(select(func.max(_batch.id))) or 0

    def status(self, *, now: float, after_seconds: float) -> LakeStatus:
        """Return how much has moved and how much waits. Args: as for `plan`."""
        with self._reader.connect() as connection:
            totals = select(func.count(), func.sum(_batch.n_bytes), func.max(_batch.moved_at))
            n_batches, n_bytes, moved_at = connection.execute(totals.where(_batch.moved_at.is_not(None))).one()
            is_pending = tables.lake_deletion.c.deleted_at.is_(None)
            waiting = movable_attempts(idle_since=now - after_seconds)
            later = movable_attempts(idle_since=math.inf)
            return LakeStatus(
                moved_attempts=_count(connection, select(_attempt.id).where(_attempt.lake_batch_id.is_not(None))),
                moved_batches=n_batches,
                moved_bytes=int(n_bytes or 0),
                moved_at=moved_at,
                due_attempts=_count(connection, waiting),
                ended_attempts=_count(connection, later),
                late_attempts=_count(connection, late_attempts()),
                planned_batch=connection.scalar(select(_batch.id).where(_batch.moved_at.is_(None))),
                pending_deletions=_count(connection, select(tables.lake_deletion.c.run_id).where(is_pending)),
            )

    def planned(self) -> LakeBatch | None:
        """Return the batch that is planned and has not moved yet; runs that were deleted since then are left out."""
        with self._reader.connect() as connection:
            return planned_batch(connection)

    def plan(self, *, now: float, after_seconds: float, max_bytes: int = BATCH_BYTES) -> LakeBatch | None:
        """Return the planned batch or plan the next one in one transaction; None if no attempt can move.

        Its attempts are sealed: from now on a message for one of them is late, and its worker changes none of its rows.
        Args: now: seconds on the server's clock; after_seconds: how long a run must have been idle.
        """
        idle_since = now - after_seconds
        with self._reader.connect() as connection:
            if (planned := planned_batch(connection)) is not None:
                return planned
            candidates = _candidates(connection, idle_since=idle_since)
        if not candidates:
            return None

        def write_plan(transaction: Transaction) -> None:
            connection = transaction.connection
            advisory_locks.lock_exclusively(connection, advisory_locks.AdvisoryLock.LAKE)
            if connection.scalar(select(exists().where(_batch.moved_at.is_(None)))):
                return
            plan = _plan(connection, candidates, idle_since=idle_since, max_bytes=max_bytes)
            if plan.rows:
                _insert_batch(connection, plan, now=now)

        self._writer.submit(write_plan).result()
        return self.planned()

    def skip_to(self, batch_id: int, *, now: float) -> None:
        """Record an empty batch, so that the next one has a later number."""
        row = {"id": batch_id, "planned_at": now, "moved_at": now, "n_attempts": 0, "n_reports": 0, "n_bytes": 0}
        self._writer.submit(
            lambda transaction: insert_new(transaction.connection, tables.lake_batch, rows=[row])
        ).result()

    def finish(self, batch: LakeBatch, *, now: float) -> None:
        """Mark a batch as moved, and its attempts as read from the lake; repeating it changes nothing."""

        def write_end(transaction: Transaction) -> None:
            connection = transaction.connection
            is_open = (_batch.id == batch.id) & _batch.moved_at.is_(None)
            if not connection.execute(update(tables.lake_batch).where(is_open).values(moved_at=now)).rowcount:
                return
            first = [member.attempt_id for member in batch.members if not member.is_late]
            moved = update(tables.attempt).where(_attempt.id.in_(first))
            connection.execute(moved.values(lake_batch_id=batch.id))
            _empty_checkpoints(connection, {member.run_id for member in batch.members})
            # A trainer that goes on starts a new attempt, which the cached entries do not say.
            self._registry.flush(connection)
            self._registry.forget()

        self._writer.submit(write_end).result()


def _candidates(connection: Connection, *, idle_since: float) -> list[tuple[int, int]]:
    queries = (late_attempts(), movable_attempts(idle_since=idle_since))
    return [(row.id, row.run_id) for query in queries for row in connection.execute(query.limit(BATCH_ATTEMPTS))]


def _plan(connection: Connection, candidates: Sequence[tuple[int, int]], *, idle_since: float, max_bytes: int) -> _Plan:
    """Return the candidates that can still move, until they are too many or too large together."""
    plan = _Plan()
    for attempt_id, run_id in candidates[:BATCH_ATTEMPTS]:
        # A run whose lock is held gets rows at this moment; it waits for the next batch.
        if not _try_lock_run(connection, run_id):
            continue
        former = moved_up_to(connection, attempt_id)
        query = movable_attempts(idle_since=idle_since) if former is None else late_attempts()
        if connection.execute(query.where(_attempt.id == attempt_id)).one_or_none() is None:
            continue
        after = former or (0, 0)
        report_id, notice_id, n_reports, n_bytes = message_bounds(connection, attempt_id, after=after)
        if plan.rows and plan.n_bytes + n_bytes > max_bytes:
            break
        plan.n_reports += n_reports
        plan.n_bytes += n_bytes
        plan.rows.append(
            {
                "attempt_id": attempt_id,
                "run_id": run_id,
                "is_late": former is not None,
                "after_report_id": after[0],
                "report_id": report_id,
                "after_notice_id": after[1],
                "notice_id": notice_id,
            }
        )
    return plan


def _try_lock_run(connection: Connection, run_id: int) -> bool:
    return all(
        advisory_locks.try_lock_number(connection, advisory_locks.lock_number(space, run_id))
        for space in (LockSpace.MESSAGES, LockSpace.ROWS)
    )


def _insert_batch(connection: Connection, plan: _Plan, *, now: float) -> None:
    id_ = (connection.scalar(select(func.max(_batch.id))) or 0) + 1
    sizes = {"n_attempts": len(plan.rows), "n_reports": plan.n_reports, "n_bytes": plan.n_bytes}
    connection.execute(insert(tables.lake_batch).values(id=id_, planned_at=now, moved_at=None, **sizes))
    connection.execute(insert(tables.lake_batch_attempt), [{"lake_batch_id": id_, **row} for row in plan.rows])


def planned_batch(connection: Connection) -> LakeBatch | None:
    """Return the batch that is planned and has not moved yet; runs that were deleted since then are left out."""
    row = connection.execute(select(tables.lake_batch).where(_batch.moved_at.is_(None))).one_or_none()
    if row is None:
        return None
    return LakeBatch(
        id=row.id,
        database_id=_database_id(connection),
        planned_at=row.planned_at,
        n_reports=row.n_reports,
        n_bytes=row.n_bytes,
        members=[LAKE_MEMBER_MAPPING.from_row(member) for member in _members(connection, row.id, row.planned_at)],
    )


def _members(connection: Connection, batch_id: int, planned_at: float) -> Sequence[Any]:
    run, later = tables.run.c, tables.attempt.alias("later")
    until = select(func.min(later.c.started_at)).where(
        later.c.run_id == _attempt.run_id, later.c.ordinal == _attempt.ordinal + 1
    )
    found = (
        select(
            *(column for column in _member if column.name != "lake_batch_id"),
            run.project,
            run.name.label("run"),
            _attempt.name.label("attempt"),
            case((_attempt.ordinal == 1, 0.0), else_=_attempt.started_at).label("since"),
            func.coalesce(until.scalar_subquery(), planned_at).label("until"),
        )
        .join_from(tables.lake_batch_attempt, tables.attempt)
        .join(tables.run, run.id == _attempt.run_id)
        .where(_member.lake_batch_id == batch_id)
        .where(not_(exists().where(tables.lake_deletion.c.run_id == run.id)))
    )
    return connection.execute(found.order_by(run.project, _member.run_id, _member.attempt_id)).all()


def _empty_checkpoints(connection: Connection, run_ids: set[int]) -> None:
    """Drop the checkpoints of runs whose attempts have all moved; the number of their batches stays."""
    state = tables.run_state.c
    has_rows = exists().where(_attempt.run_id == state.run_id, _attempt.lake_batch_id.is_(None))
    newest = select(func.max(tables.batch.c.ordinal)).where(tables.batch.c.run_id == state.run_id).scalar_subquery()
    emptied = update(tables.run_state).where(and_(state.run_id.in_(run_ids), not_(has_rows)))
    connection.execute(emptied.values(ordinal=func.coalesce(newest, state.ordinal), version=None, state=None))


def _count(connection: Connection, query: Select[Any]) -> int:
    return connection.scalars(select(func.count()).select_from(query.order_by(None).subquery())).one()


def _database_id(connection: Connection) -> str:
    database_id: str = connection.scalars(select(tables.database_identity.c.id)).one()
    return database_id
