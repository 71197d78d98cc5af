"""The cached runs and attempts of the registry: read them from the tables, and insert new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, func, insert, select, true

from trmon.domain.model.identity import RunKey
from trmon.domain.runs.attempts import Claim, Resolution
from trmon.domain.runs.run import RunState
from trmon.store.database.upsert import insert_new
from trmon.store.rows.row_mapping import RowMapping
from trmon.store.schema import tables
from trmon_client.core import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedMessage:
    """A message of a run and its arrival time, seconds on the server's clock."""

    key: RunKey
    message: wire.Message
    at: float


@dataclass(slots=True)
class AttemptEntry:
    """An attempt with its claims by rank and its forks by launch; `is_moved`: it has moved to the lake."""

    id: int
    run_id: int
    name: str
    is_moved: bool = False
    claims: dict[int, Claim] = field(default_factory=dict)
    forks: dict[str, AttemptEntry] = field(default_factory=dict)


@dataclass(slots=True)
class RunEntry:
    """A run with its attempts by name and, for those read from the tables, by id."""

    id: int
    attempts: dict[str, AttemptEntry] = field(default_factory=dict)
    by_id: dict[int, AttemptEntry] = field(default_factory=dict)


_ALL_CLAIMS = true()
_CLAIM = RowMapping(Claim)
_ATTEMPT_COLUMNS = (
    tables.attempt.c.id.label("claimed_attempt_id"),
    tables.attempt.c.name.label("attempt"),
    tables.attempt.c.fork_of,
    tables.attempt.c.launch.label("fork_launch"),
    tables.attempt.c.lake_batch_id,
)


def select_entries(where: ColumnElement[bool], *, claims: ColumnElement[bool] = _ALL_CLAIMS) -> Select[Any]:
    """Return a query for the runs that match a predicate, with their attempts and the matching claims."""
    run, attempt, claim = tables.run, tables.attempt, tables.claim
    is_claim = (claim.c.attempt_id == attempt.c.id) & claims
    joined = run.outerjoin(attempt, attempt.c.run_id == run.c.id).outerjoin(claim, is_claim)
    query = select(run.c.id, run.c.project, run.c.name.label("run"), *_ATTEMPT_COLUMNS, *claim.c).select_from(joined)
    return query.where(where).order_by(attempt.c.id)


def read_entries(
    connection: Connection, statement: Select[Any], parameters: Mapping[str, Any] | None = None
) -> dict[RunKey, RunEntry]:
    """Return the runs that a query of `select_entries` finds."""
    return entries_of(connection.execute(statement, parameters))


def entries_of(rows: Iterable[Any]) -> dict[RunKey, RunEntry]:
    """Return the runs of rows that have the columns of `select_entries` as attributes."""
    entries: dict[RunKey, RunEntry] = {}
    for row in rows:
        entry = entries.setdefault(RunKey(row.project, row.run), RunEntry(row.id))
        if row.attempt is not None:
            _add_row(entry, row)
    return entries


def _add_row(run: RunEntry, row: Any) -> None:
    """Add the attempt and the claim of a row; rows are in the order of attempts, an origin before its forks."""
    attempt = run.attempts.get(row.attempt)
    if attempt is None:
        attempt = run.attempts[row.attempt] = run.by_id[row.claimed_attempt_id] = AttemptEntry(
            row.claimed_attempt_id, run.id, row.attempt, is_moved=row.lake_batch_id is not None
        )
        if row.fork_of is not None:
            run.by_id[row.fork_of].forks[row.fork_launch] = attempt
    if row.rank is not None:
        attempt.claims[row.rank] = _CLAIM.from_row(row)


def insert_run(connection: Connection, arrival: ArrivedMessage) -> RunEntry:
    """Insert the run of a message, and its project if that is new."""
    _insert_projects(connection, [arrival])
    return RunEntry(_insert_returning_id(connection, tables.run, _run_row(arrival)))


def insert_runs(connection: Connection, arrivals: Iterable[ArrivedMessage]) -> None:
    """Insert the runs of messages that do not exist yet; another process may insert the same ones."""
    first = {arrival.key: arrival for arrival in sorted(arrivals, key=lambda arrival: arrival.at, reverse=True)}
    # All processes insert in the order of the names, which prevents deadlocks.
    ordered = [first[key] for key in sorted(first)]
    _insert_projects(connection, ordered)
    insert_new(connection, tables.run, rows=[_run_row(arrival) for arrival in ordered])


def _insert_projects(connection: Connection, arrivals: Iterable[ArrivedMessage]) -> None:
    created = {arrival.key.project: arrival.at for arrival in arrivals}
    insert_new(connection, tables.project, rows=[{"name": name, "created_at": at} for name, at in created.items()])


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


def insert_attempt(
    connection: Connection,
    run: RunEntry,
    *,
    arrival: ArrivedMessage,
    name: str,
    origin: AttemptEntry | None = None,
    reason: Resolution | None = None,
) -> AttemptEntry:
    """Insert an attempt of the run; with an origin, it is the fork for the message's launch."""
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
    entry = run.attempts[name] = AttemptEntry(_insert_returning_id(connection, tables.attempt, row), run.id, name)
    if origin is not None:
        origin.forks[message.launch] = entry
    return entry


def _insert_returning_id(connection: Connection, table: Table, row: dict[str, object]) -> int:
    key = connection.execute(insert(table).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])
