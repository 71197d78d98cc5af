"""Runs and attempts as the directory remembers them, and how they are read and made."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection, Row, Table, func, insert, select

from trmon.domain.attempts import Claim, Resolution
from trmon.domain.identity import RunKey
from trmon.domain.runs import RunState
from trmon.store import schema
from trmon.store.upsert import insert_new
from trmon_client.core import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
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
    """A run and its attempts by name."""

    id: int
    attempts: dict[str, AttemptEntry] = field(default_factory=dict)


def load_run(connection: Connection, key: RunKey) -> RunEntry | None:
    """Return what the tables know of a run, or None."""
    named = select(schema.run.c.id).where(schema.run.c.project == key.project, schema.run.c.name == key.run)
    run_id = connection.scalar(named)
    if run_id is None:
        return None
    run = RunEntry(run_id)
    by_id: dict[int, AttemptEntry] = {}
    attempts = select(schema.attempt).where(schema.attempt.c.run_id == run_id).order_by(schema.attempt.c.id)
    for row in connection.execute(attempts):
        entry = by_id[row.id] = run.attempts[row.name] = AttemptEntry(row.id, run_id, row.name)
        if row.fork_of is not None:
            by_id[row.fork_of].forks[row.launch] = entry
    for row in connection.execute(select(schema.claim).where(schema.claim.c.run_id == run_id)):
        by_id[row.attempt_id].claims[row.rank] = _claim(row)
    return run


def make_run(connection: Connection, arrival: Arrival) -> RunEntry:
    """Insert the run of a message, and its project if it is the first."""
    project = {"name": arrival.key.project, "created_at": arrival.at}
    connection.execute(insert_new(connection, schema.project), project)
    row: dict[str, object] = {
        "project": arrival.key.project,
        "name": arrival.key.run,
        "state": RunState.RUNNING.value,
        "config": {},
        "mode": getattr(arrival.message, "mode", "observe"),
        "created_at": arrival.at,
        "archived": False,
    }
    return RunEntry(_new_id(connection, schema.run, row))


def make_attempt(
    connection: Connection,
    run: RunEntry,
    *,
    arrival: Arrival,
    name: str,
    origin: AttemptEntry | None = None,
    reason: Resolution | None = None,
) -> AttemptEntry:
    """Insert an attempt of the run; with an origin, it is the fork that the message's launch gets."""
    message = arrival.message
    ordinal = select(func.count()).select_from(schema.attempt).where(schema.attempt.c.run_id == run.id)
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
    entry = run.attempts[name] = AttemptEntry(_new_id(connection, schema.attempt, row), run.id, name)
    if origin is not None:
        origin.forks[message.launch] = entry
    return entry


def _new_id(connection: Connection, table: Table, row: dict[str, object]) -> int:
    made = connection.execute(insert(table).values(row)).inserted_primary_key
    assert made is not None
    return int(made[0])


def _claim(row: Row[tuple[object, ...]]) -> Claim:
    return Claim(
        launch=row.launch,
        seen_at=row.seen_at,
        reported_at=row.reported_at,
        last_step=row.last_step,
        ended=row.ended,
        former_launch=row.former_launch,
        former_step=row.former_step,
    )
