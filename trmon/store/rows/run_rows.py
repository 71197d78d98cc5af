"""How runs and attempts lie in the tables, and who may see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    delete,
    func,
    insert,
    select,
    true,
)

from trmon.domain.model.access import EVERYTHING, Access
from trmon.domain.model.errors import NotFound
from trmon.domain.model.identity import RunKey
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import Attempt, Run, RunState
from trmon.store.database.upsert import change_all
from trmon.store.schema import tables

Tags = Mapping[int, tuple[str, ...]]

_LAST_REPORT_AT = (
    select(func.max(tables.claim.c.reported_at)).where(tables.claim.c.run_id == tables.run.c.id).scalar_subquery()
)


def visible_runs(access: Access) -> ColumnElement[bool]:
    """Return the predicate that a run is one the caller may see; the statement must read the table `run`."""
    return true() if access.project is None else tables.run.c.project == access.project


def select_runs(access: Access) -> Select[Any]:
    """Return a query for rows of runs the caller may see."""
    return select(tables.run, _LAST_REPORT_AT.label("last_report_at")).where(visible_runs(access))


def has_name(key: RunKey) -> ColumnElement[bool]:
    """Return the predicate that a run has a name."""
    return (tables.run.c.project == key.project) & (tables.run.c.name == key.run)


def read_runs(connection: Connection, statement: Select[Any]) -> list[Run]:
    """Return the runs that a query made by `select_runs` finds."""
    rows = connection.execute(statement).all()
    tags = _tags(connection, [row.id for row in rows])
    return [_run(row, tags) for row in rows]


def read_run(connection: Connection, where: ColumnElement[bool], *, name: str, access: Access = EVERYTHING) -> Run:
    """Return the one run of a predicate. Errors: NotFound, also for one the caller may not see."""
    found = read_runs(connection, select_runs(access).where(where))
    if not found:
        raise NotFound("run", name)
    return found[0]


def write_runs(connection: Connection, changed: Mapping[int, Mapping[str, Any]]) -> None:
    """Change columns of runs, by their ids; those of which the same columns change are written together."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run_id, values in changed.items():
        if values:
            alike.setdefault(tuple(values), []).append({"id": run_id, **values})
    for rows in alike.values():
        change_all(connection, tables.run, rows=rows)


def write_tags(connection: Connection, run_id: int, *, tags: Collection[str] | None) -> None:
    """Replace the tags of a run, if any are given."""
    if tags is not None:
        connection.execute(delete(tables.run_tag).where(tables.run_tag.c.run_id == run_id))
    if tags:
        connection.execute(insert(tables.run_tag), [{"run_id": run_id, "tag": tag} for tag in sorted(set(tags))])


def attempt_from_row(row: Any) -> Attempt:
    """Return an attempt from its row."""
    return Attempt(
        id=row.id,
        run_id=row.run_id,
        name=row.name,
        ordinal=row.ordinal,
        started_at=row.started_at,
        world_size=row.world_size,
        fork_of=row.fork_of,
        fork_reason=Resolution(row.fork_reason) if row.fork_reason else None,
        ranks_unverified=row.ranks_unverified,
    )


def _tags(connection: Connection, run_ids: Sequence[int]) -> Tags:
    table = tables.run_tag
    tags: dict[int, tuple[str, ...]] = {}
    found = select(table).where(table.c.run_id.in_(run_ids)).order_by(table.c.tag)
    for row in connection.execute(found) if run_ids else ():
        tags[row.run_id] = (*tags.get(row.run_id, ()), row.tag)
    return tags


def _run(row: Any, tags: Tags) -> Run:
    return Run(
        id=row.id,
        key=RunKey(row.project, row.name),
        state=RunState(row.state),
        owner=row.owner,
        tags=tags.get(row.id, ()),
        config=row.config,
        mode=row.mode,
        created_at=row.created_at,
        last_report_at=row.last_report_at,
        last_step=row.last_step,
        attempt_id=row.attempt_id,
        archived=row.archived,
    )
