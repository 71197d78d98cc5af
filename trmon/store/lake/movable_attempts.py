"""Which attempts can move to the lake, and which messages have arrived since an attempt moved."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Subquery, and_, exists, func, not_, or_, select

from trmon.domain.runs.run import RunState
from trmon.store.schema import tables

MOVABLE_STATES = tuple(state.value for state in RunState if state.ended or state is RunState.STALLED)
_run, _attempt, _state = tables.run.c, tables.attempt.c, tables.run_state.c
_report, _notice, _moved = tables.report.c, tables.notice.c, tables.lake_batch_attempt.c

IS_SEALED = exists().where(_moved.attempt_id == _attempt.id)
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
    return _ATTEMPTS.where(is_idle(idle_since), _IS_CLOSED, _IS_KEPT, not_(IS_SEALED)).order_by(_attempt.id)


def is_idle(idle_since: float) -> ColumnElement[bool]:
    """Return the predicate that the run of an attempt has ended or stalled, and is silent since a time, seconds."""
    return and_(_run.state.in_(MOVABLE_STATES), idle_since >= _SEEN_AT)


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


def moved_up_to(connection: Connection, attempt_id: int) -> tuple[int, int] | None:
    """Return the newest report and the newest notice that have moved of an attempt; None if it never moved."""
    newest = _newest_moved()
    found = select(newest.c.report_id, newest.c.notice_id).where(newest.c.attempt_id == attempt_id)
    row = connection.execute(found).one_or_none()
    return None if row is None else (row.report_id, row.notice_id)


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
