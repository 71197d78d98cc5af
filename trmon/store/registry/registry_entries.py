"""Runs and attempts as the directory remembers them, and how they are read and made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, func, insert, select, true

from trmon.domain.model.identity import RunKey
from trmon.domain.runs.attempts import Claim, Resolution
from trmon.domain.runs.run import RunState
from trmon.store.database.upsert import insert_new
from trmon.store.schema import tables
from trmon_client.core import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedMessage:
    """A message of a run and when it came, seconds on the server's clock."""

    key: RunKey
    message: wire.Message
    at: float


@dataclass(slots=True)
class AttemptEntry:
    """An attempt, its claims by rank, and its forks by the launch they are for."""

    id: int
    run_id: int
    name: str
    claims: dict[int, Claim] = field(default_factory=dict)
    forks: dict[str, AttemptEntry] = field(default_factory=dict)


@dataclass(slots=True)
class RunEntry:
    """A run and its attempts by name, and those that were read by id."""

    id: int
    attempts: dict[str, AttemptEntry] = field(default_factory=dict)
    by_id: dict[int, AttemptEntry] = field(default_factory=dict)


_ALL = true()
_OF_ATTEMPT = (
    tables.attempt.c.id.label("its_id"),
    tables.attempt.c.name.label("attempt"),
    tables.attempt.c.fork_of,
    tables.attempt.c.launch.label("of_launch"),
)


def select_entries(where: ColumnElement[bool], *, claims: ColumnElement[bool] = _ALL) -> Select[Any]:
    """Return a query for what the tables know of the runs of a predicate, with the claims of another one."""
    run, attempt, claim = tables.run, tables.attempt, tables.claim
    of_attempt = (claim.c.attempt_id == attempt.c.id) & claims
    joined = run.outerjoin(attempt, attempt.c.run_id == run.c.id).outerjoin(claim, of_attempt)
    found = select(run.c.id, run.c.project, run.c.name.label("run"), *_OF_ATTEMPT, *claim.c).select_from(joined)
    return found.where(where).order_by(attempt.c.id)


def read_entries(
    connection: Connection, statement: Select[Any], parameters: Mapping[str, Any] | None = None
) -> dict[RunKey, RunEntry]:
    """Return the runs that a query made by `select_entries` finds."""
    return entries_of(connection.execute(statement, parameters))


def entries_of(rows: Iterable[Any]) -> dict[RunKey, RunEntry]:
    """Return the runs of rows that a query made by `select_entries` found, their values under its names."""
    entries: dict[RunKey, RunEntry] = {}
    for row in rows:
        entry = entries.setdefault(RunKey(row.project, row.run), RunEntry(row.id))
        if row.attempt is not None:
            _place(entry, row)
    return entries


def _place(run: RunEntry, row: Any) -> None:
    """Take up the attempt and the claim of a row; attempts come in their order, an origin before its forks."""
    attempt = run.attempts.get(row.attempt)
    if attempt is None:
        attempt = run.attempts[row.attempt] = run.by_id[row.its_id] = AttemptEntry(row.its_id, run.id, row.attempt)
        if row.fork_of is not None:
            run.by_id[row.fork_of].forks[row.of_launch] = attempt
    if row.rank is not None:
        attempt.claims[row.rank] = _claim(row)


def make_run(connection: Connection, arrival: ArrivedMessage) -> RunEntry:
    """Insert the run of a message, and its project if it is the first."""
    _make_projects(connection, [arrival])
    return RunEntry(_new_id(connection, tables.run, _run_row(arrival)))


def make_runs(connection: Connection, arrivals: Iterable[ArrivedMessage]) -> None:
    """Insert the runs of messages; one that another process makes meanwhile is left alone."""
    first = {arrival.key: arrival for arrival in sorted(arrivals, key=lambda arrival: arrival.at, reverse=True)}
    # All processes insert in the order of the names, so that none waits for another in a circle.
    ordered = [first[key] for key in sorted(first)]
    _make_projects(connection, ordered)
    insert_new(connection, tables.run, rows=[_run_row(arrival) for arrival in ordered])


def _make_projects(connection: Connection, arrivals: Iterable[ArrivedMessage]) -> None:
    made = {arrival.key.project: arrival.at for arrival in arrivals}
    insert_new(connection, tables.project, rows=[{"name": name, "created_at": at} for name, at in made.items()])


def _run_row(arrival: ArrivedMessage) -> dict[str, object]:
    return {
        "project": arrival.key.project,
        "name": arrival.key.run,
        "state": RunState.RUNNING.value,
        "config": {},
        "mode": getattr(arrival.message, "mode", "observe"),
        "created_at": arrival.at,
        "archived": False,
    }


def make_attempt(
    connection: Connection,
    run: RunEntry,
    *,
    arrival: ArrivedMessage,
    name: str,
    origin: AttemptEntry | None = None,
    reason: Resolution | None = None,
) -> AttemptEntry:
    """Insert an attempt of the run; with an origin, it is the fork that the message's launch gets."""
    message = arrival.message
    ordinal = select(func.count()).select_from(tables.attempt).where(tables.attempt.c.run_id == run.id)
    row: dict[str, object] = {
        "run_id": run.id,
        "name": name,
        "ordinal": connection.scalars(ordinal).one() + 1,
        "started_at": arrival.at,
        "world_size": message.world_size,
        "fork_of": origin.id if origin else None,
        "fork_reason": reason.value if reason else None,
        "launch": message.launch if origin else None,
        "ranks_unverified": False,
    }
    entry = run.attempts[name] = AttemptEntry(_new_id(connection, tables.attempt, row), run.id, name)
    if origin is not None:
        origin.forks[message.launch] = entry
    return entry


def _new_id(connection: Connection, table: Table, row: dict[str, object]) -> int:
    made = connection.execute(insert(table).values(row)).inserted_primary_key
    assert made is not None
    return int(made[0])


def _claim(row: Any) -> Claim:
    return Claim(
        launch=row.launch,
        seen_at=row.seen_at,
        began_at=row.began_at,
        beat_at=row.beat_at,
        reported_at=row.reported_at,
        last_step=row.last_step,
        ended=row.ended,
        former_launch=row.former_launch,
        former_step=row.former_step,
    )
