"""Lake batches in the database: which attempts can move, the next batch, the planned one, and one that has moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Subquery,
    and_,
    case,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from trmon.domain.runs.run import RunState
from trmon.store.database.pg_statement import AdvisoryLock, LockSpace, lock_exclusively, lock_number, try_lock_number
from trmon.store.database.upsert import insert_new
from trmon.store.registry import RunRegistry
from trmon.store.rows.mapping import RowMapping
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

MOVABLE_STATES = tuple(state.value for state in RunState if state.ended or state is RunState.STALLED)
_run, _attempt, _state = tables.run.c, tables.attempt.c, tables.run_state.c
_report, _notice, _moved = tables.report.c, tables.notice.c, tables.lake_batch_attempt.c

_IS_SEALED = exists().where(_moved.attempt_id == _attempt.id)
"""Whether an attempt has moved or is moving: its worker changes none of its rows any more."""
_IS_CLOSED = not_(
    or_(
        exists().where(_report.run_id == _run.id, _report.id > _state.report_id),
        exists().where(_notice.run_id == _run.id, _notice.id > _state.notice_id),
    )
)
"""Whether the run's worker has finished with all messages."""
_IS_KEPT = not_(or_(_run.name.startswith("~"), exists().where(tables.lake_deletion.c.run_id == _run.id)))
"""Whether a run is neither being imported nor being deleted."""
_SEEN_AT = func.coalesce(
    select(func.max(tables.claim.c.seen_at)).where(tables.claim.c.run_id == _run.id).scalar_subquery(),
    _attempt.started_at,
)
_ATTEMPTS = select(_attempt.id, _attempt.run_id).join_from(tables.attempt, tables.run).join(tables.run_state)


def movable_attempts(*, idle_since: float) -> Select[tuple[int, int]]:
    """Return a query for the id and the run's id of each attempt that can move, oldest first.

    Args: idle_since: seconds; the run of an attempt has ended, or stalled, and sent nothing after this time.
    """
    is_idle = and_(_run.state.in_(MOVABLE_STATES), idle_since >= _SEEN_AT)
    return _ATTEMPTS.where(is_idle, _IS_CLOSED, _IS_KEPT, not_(_IS_SEALED)).order_by(_attempt.id)


def late_attempts() -> Select[tuple[int, int]]:
    """Return a query for the moved attempts with messages that arrived after the move, as `movable_attempts` does."""
    newest = _newest_moved()
    is_late = or_(
        exists().where(
            _report.run_id == _run.id, _report.id > newest.c.report_id, _report.attempt_id == newest.c.attempt_id
        ),
        exists().where(
            _notice.run_id == _run.id, _notice.id > newest.c.notice_id, _notice.attempt_id == newest.c.attempt_id
        ),
    )
    joined = _ATTEMPTS.join(newest, newest.c.attempt_id == _attempt.id)
    return joined.where(is_late, _IS_CLOSED, _IS_KEPT).order_by(_attempt.id)


def message_bounds(connection: Connection, attempt_id: int, *, after: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the newest report, the newest notice, and the number and bytes of the reports after some ids.

    An id is that of `after` if there is none.
    """
    reports = select(
        func.coalesce(func.max(_report.id), after[0]),
        func.count(),
        func.coalesce(func.sum(_report.payload_bytes, type_=BigInteger), 0),
    ).where(_report.attempt_id == attempt_id, _report.id > after[0])
    notices = select(func.coalesce(func.max(_notice.id), after[1])).where(
        _notice.attempt_id == attempt_id, _notice.id > after[1]
    )
    report_id, n_reports, n_bytes = connection.execute(reports).one()
    return report_id, connection.scalars(notices).one(), n_reports, n_bytes


def _newest_moved() -> Subquery:
    return (
        select(
            _moved.attempt_id,
            func.max(_moved.report_id).label("report_id"),
            func.max(_moved.notice_id).label("notice_id"),
        )
        .group_by(_moved.attempt_id)
        .subquery()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeMember:
    """An attempt of a lake batch; the batch moves the messages after and up to these ids.

    `is_late`: the attempt moved before, and only messages that arrived since then are moved. `since` and `until` are
    the seconds between which rows of the run that name no attempt belong to it.
    """

    project: str
    run_id: int
    run: str
    attempt_id: int
    attempt: str
    is_late: bool
    after_report_id: int
    report_id: int
    after_notice_id: int
    notice_id: int
    since: float
    until: float


LAKE_MEMBER_MAPPING = RowMapping(LakeMember)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeBatch:
    """A numbered set of attempts that move together; their `n_reports` reports have `n_bytes` in the database."""

    id: int
    database_id: str
    planned_at: float
    n_reports: int
    n_bytes: int
    members: Sequence[LakeMember]

    @property
    def app_id(self) -> str:
        """The name under which the tables of the lake record the newest batch of this database."""
        return app_id_of(self.database_id)

    def front(self, member: LakeMember) -> dict[str, Any]:
        """Return the values of the first columns, among others, for the rows of a member."""
        of_batch = {"month": month_of(self.planned_at), "database_id": self.database_id, "lake_batch_id": self.id}
        return asdict(member) | of_batch


def month_of(at: float) -> str:
    """Return the month of a time in seconds, YYYY-MM in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m")


def app_id_of(database_id: str) -> str:
    """Return the id under which a database commits to the lake."""
    return f"trmon/{database_id}"


BATCH_BYTES = 256 << 20
"""Maximum report bytes of a lake batch, unless one attempt alone has more."""
BATCH_ATTEMPTS = 200
_batch, _member, _deletion = tables.lake_batch.c, tables.lake_batch_attempt.c, tables.lake_deletion.c


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeStatus:
    """The state of the lake: what has moved, and what waits.

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


class LakeBatches(Repository):
    """Plans lake batches, one at a time: the next is planned once the former has moved."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, registry: RunRegistry) -> None:
        super().__init__(reader, writer)
        self._registry = registry

    def database_id(self) -> str:
        """Return the identity of the database in a lake of several."""
        with self._reader.connect() as connection:
            return _database_id(connection)

    def newest_id(self) -> int:
        """Return the number of the newest lake batch; 0 without one."""
        return self._values(select(func.max(_batch.id)))[0] or 0

    def status(self, *, now: float, after_seconds: float) -> LakeStatus:
        """Return how much has moved and how much waits. Args: as for `plan`."""
        with self._reader.connect() as connection:
            totals = select(func.count(), func.sum(_batch.n_bytes), func.max(_batch.moved_at))
            n_batches, n_bytes, moved_at = connection.execute(totals.where(_batch.moved_at.is_not(None))).one()
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
                pending_deletions=_count(connection, select(_deletion.run_id).where(_deletion.deleted_at.is_(None))),
            )

    def planned(self) -> LakeBatch | None:
        """Return the batch that is planned and has not moved yet; runs that were deleted since then are left out."""
        with self._reader.connect() as connection:
            return planned_batch(connection)

    def plan(self, *, now: float, after_seconds: float) -> LakeBatch | None:
        """Return the planned batch or plan the next one in one transaction; None if no attempt can move.

        Its attempts are sealed: from now on a message for one of them is late, and its worker changes none of its rows.
        Args: now: seconds on the server's clock; after_seconds: how long a run must have been idle.
        """
        idle_since = now - after_seconds
        with self._reader.connect() as connection:
            if (planned := planned_batch(connection)) is not None:
                return planned
            queries = (late_attempts(), movable_attempts(idle_since=idle_since))
            found = [row for query in queries for row in connection.execute(query.limit(BATCH_ATTEMPTS))]
            candidates = [(row.id, row.run_id) for row in found]
        if not candidates:
            return None

        def write_plan(transaction: Transaction) -> None:
            connection = transaction.connection
            lock_exclusively(connection, AdvisoryLock.LAKE)
            if connection.scalar(select(exists().where(_batch.moved_at.is_(None)))):
                return
            rows, sizes = _plan(connection, candidates, idle_since=idle_since)
            if rows:
                id_ = (connection.scalar(select(func.max(_batch.id))) or 0) + 1
                connection.execute(insert(tables.lake_batch).values(id=id_, planned_at=now, moved_at=None, **sizes))
                connection.execute(insert(tables.lake_batch_attempt), [{"lake_batch_id": id_, **row} for row in rows])

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
            # Drop the checkpoints of runs whose attempts have all moved; the number of their batches stays.
            state = tables.run_state.c
            has_rows = exists().where(_attempt.run_id == state.run_id, _attempt.lake_batch_id.is_(None))
            newest = (
                select(func.max(tables.batch.c.ordinal)).where(tables.batch.c.run_id == state.run_id).scalar_subquery()
            )
            emptied = update(tables.run_state).where(
                and_(state.run_id.in_({member.run_id for member in batch.members}), not_(has_rows))
            )
            connection.execute(emptied.values(ordinal=func.coalesce(newest, state.ordinal), version=None, state=None))
            # A trainer that continues starts a new attempt, which the cached entries do not say.
            self._registry.flush(connection)
            self._registry.forget()

        self._writer.submit(write_end).result()

    def pending_deletions(self) -> Sequence[int]:
        """Return the ids of the deleted runs that the lake may still have."""
        return self._values(select(_deletion.run_id).where(_deletion.deleted_at.is_(None)).order_by(_deletion.run_id))

    def finish_deletions(self, run_ids: Sequence[int], *, now: float) -> None:
        """Record that the lake has these runs no more."""
        done = update(tables.lake_deletion).where(_deletion.run_id.in_(run_ids)).values(deleted_at=now)
        self._writer.submit(lambda transaction: transaction.connection.execute(done)).result()


def _plan(
    connection: Connection, candidates: Sequence[tuple[int, int]], *, idle_since: float
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the candidates that can still move, until they are too many or too large together, and their sizes."""
    rows: list[dict[str, Any]] = []
    total_reports = total_bytes = 0
    for attempt_id, run_id in candidates[:BATCH_ATTEMPTS]:
        # A run whose lock is held gets rows at this moment; it waits for the next batch.
        locks = (lock_number(space, run_id) for space in (LockSpace.MESSAGES, LockSpace.ROWS))
        if not all(try_lock_number(connection, lock) for lock in locks):
            continue
        newest = _newest_moved()
        moved_up_to = select(newest.c.report_id, newest.c.notice_id).where(newest.c.attempt_id == attempt_id)
        former = connection.execute(moved_up_to).one_or_none()
        query = movable_attempts(idle_since=idle_since) if former is None else late_attempts()
        if connection.execute(query.where(_attempt.id == attempt_id)).one_or_none() is None:
            continue
        after = (0, 0) if former is None else (former.report_id, former.notice_id)
        report_id, notice_id, n_reports, n_bytes = message_bounds(connection, attempt_id, after=after)
        if rows and total_bytes + n_bytes > BATCH_BYTES:
            break
        total_reports += n_reports
        total_bytes += n_bytes
        rows.append(
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
    return rows, {"n_attempts": len(rows), "n_reports": total_reports, "n_bytes": total_bytes}


def planned_batch(connection: Connection) -> LakeBatch | None:
    """Return the batch that is planned and has not moved yet; runs that were deleted since then are left out."""
    row = connection.execute(select(tables.lake_batch).where(_batch.moved_at.is_(None))).one_or_none()
    if row is None:
        return None
    of_batch = (column for column in _member if column.name != "lake_batch_id")
    found = (
        select(*of_batch, *member_columns(until=row.planned_at))
        .join_from(tables.lake_batch_attempt, tables.attempt)
        .join(tables.run, _run.id == _attempt.run_id)
        .where(_member.lake_batch_id == row.id, not_(exists().where(_deletion.run_id == _run.id)))
        .order_by(_run.project, _member.run_id, _member.attempt_id)
    )
    return LakeBatch(
        id=row.id,
        database_id=_database_id(connection),
        planned_at=row.planned_at,
        n_reports=row.n_reports,
        n_bytes=row.n_bytes,
        members=[LAKE_MEMBER_MAPPING.from_row(member) for member in connection.execute(found)],
    )


def member_columns(*, until: float) -> list[ColumnElement[Any]]:
    """Return the columns of a member that its run and its attempt have. Args: until: the end of the last attempt."""
    later = tables.attempt.alias("later")
    next_at = select(func.min(later.c.started_at)).where(
        later.c.run_id == _attempt.run_id, later.c.ordinal == _attempt.ordinal + 1
    )
    return [
        _run.project,
        _run.name.label("run"),
        _attempt.name.label("attempt"),
        case((_attempt.ordinal == 1, 0.0), else_=_attempt.started_at).label("since"),
        func.coalesce(next_at.scalar_subquery(), until).label("until"),
    ]


def _count(connection: Connection, query: Select[Any]) -> int:
    return connection.scalars(select(func.count()).select_from(query.order_by(None).subquery())).one()


def _database_id(connection: Connection) -> str:
    database_id: str = connection.scalars(select(tables.database_identity.c.id)).one()
    return database_id
