"""Assign messages to runs and attempts, and create these when they first appear; both are cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, func, insert, select, true, update

from trmon.domain.identity import RunKey
from trmon.domain.runs.attempts import (
    Claim,
    Resolution,
    fork_name,
    progress_step,
    renewed_claim,
    resolve_attempt,
    was_reached_before_fork,
)
from trmon.domain.runs.run import RunState
from trmon.store.database.upsert import Row, insert_new, upsert
from trmon.store.rows.mapping import RowMapping
from trmon.store.rows.runs import has_name
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


def entries_of(rows: Iterable[Any]) -> dict[RunKey, RunEntry]:
    """Return the runs of rows that have the columns of `select_entries` as attributes."""
    entries: dict[RunKey, RunEntry] = {}
    for row in rows:
        run = entries.setdefault(RunKey(row.project, row.run), RunEntry(row.id))
        if row.attempt is None:
            continue
        attempt = run.attempts.get(row.attempt)
        if attempt is None:
            attempt = run.attempts[row.attempt] = run.by_id[row.claimed_attempt_id] = AttemptEntry(
                row.claimed_attempt_id, run.id, row.attempt, is_moved=row.lake_batch_id is not None
            )
            if row.fork_of is not None:  # rows are in the order of attempts, an origin before its forks
                run.by_id[row.fork_of].forks[row.fork_launch] = attempt
        if row.rank is not None:
            attempt.claims[row.rank] = _CLAIM.from_row(row)
    return entries


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


MAX_RUNS = 10_000
"""Maximum runs in memory; above it the cache is cleared, and runs are read again when a message arrives."""


class RunRegistry:
    """A cache of the runs that send messages, with their attempts and claims; it reads the tables on demand.

    Only the writer's thread uses it, inside a transaction; after a rollback it must be cleared with `forget`. If other
    processes write too, `replace` must refresh it under locks in each transaction. Any thread may read
    `last_seen`: seconds on the server's clock by run id.
    """

    def __init__(self, *, live_seconds: float) -> None:
        self.last_seen: dict[int, float] = {}
        self._live_seconds = live_seconds
        self._runs: dict[RunKey, RunEntry] = {}
        self._changed: dict[tuple[int, int], Row] = {}

    @property
    def pending(self) -> bool:
        """Whether there are changed claims to write."""
        return bool(self._changed)

    def forget(self) -> None:
        """Clear the cache."""
        self._runs.clear()
        self._changed.clear()

    def replace(self, runs: Mapping[RunKey, RunEntry]) -> None:
        """Replace the content of the cache."""
        self._runs = dict(runs)

    def assign(self, connection: Connection, arrival: ArrivedMessage) -> AttemptEntry:
        """Return the attempt of a message to store, and extend its claim."""
        message = arrival.message
        run = self._run(connection, arrival.key) or self._insert_run(connection, arrival)
        attempt = run.attempts.get(message.attempt)
        if attempt is None:
            attempt = insert_attempt(connection, run, arrival=arrival, name=message.attempt)
        attempt = _left_or_forked(attempt, message)
        claim = attempt.claims.get(message.rank)
        resolution = resolve_attempt(
            claim,
            launch=message.launch,
            step=progress_step(claim, message),
            now=arrival.at,
            live_seconds=self._live_seconds,
            is_moved=attempt.is_moved,
        )
        if resolution.forks:
            name = fork_name(attempt.name, message.launch, taken=run.attempts)
            attempt = insert_attempt(connection, run, arrival=arrival, name=name, origin=attempt, reason=resolution)
        if isinstance(message, wire.Start):
            # An attempt whose ranks were unverified once stays unverified.
            values = {"world_size": message.world_size}
            if message.ranks_unverified:
                values["ranks_unverified"] = True
            connection.execute(update(tables.attempt).where(tables.attempt.c.id == attempt.id).values(values))
        self._extend(attempt, arrival)
        return attempt

    def touch(self, connection: Connection, arrival: ArrivedMessage) -> None:
        """Record a heartbeat; it is ignored if no other message of its run, attempt and launch has arrived."""
        message = arrival.message
        run = self._run(connection, arrival.key)
        attempt = run.attempts.get(message.attempt) if run else None
        if attempt is None:
            return
        attempt = attempt.forks.get(message.launch, attempt)
        claim = attempt.claims.get(message.rank)
        if claim is not None and claim.launch == message.launch:
            self._extend(attempt, arrival)

    def flush(self, connection: Connection) -> None:
        """Write the changed claims."""
        upsert(connection, tables.claim, key=("attempt_id", "rank"), rows=list(self._changed.values()))
        self._changed.clear()

    def _extend(self, attempt: AttemptEntry, arrival: ArrivedMessage) -> None:
        message = arrival.message
        claim = renewed_claim(attempt.claims.get(message.rank), message, now=arrival.at)
        attempt.claims[message.rank] = claim
        self._changed[attempt.id, message.rank] = {
            "attempt_id": attempt.id,
            "rank": message.rank,
            "run_id": attempt.run_id,
            **_CLAIM.to_row(claim),
        }
        self.last_seen[attempt.run_id] = max(arrival.at, self.last_seen.get(attempt.run_id, 0.0))

    def _run(self, connection: Connection, key: RunKey) -> RunEntry | None:
        run = self._runs.get(key)
        if run is None:
            run = entries_of(connection.execute(select_entries(has_name(key)))).get(key)
            if run is not None:
                self._cache(connection, key, run)
        return run

    def _insert_run(self, connection: Connection, arrival: ArrivedMessage) -> RunEntry:
        _insert_projects(connection, [arrival])
        run = RunEntry(_insert_returning_id(connection, tables.run, _run_row(arrival)))
        self._cache(connection, arrival.key, run)
        return run

    def _cache(self, connection: Connection, key: RunKey, run: RunEntry) -> None:
        if len(self._runs) >= MAX_RUNS:
            self.flush(connection)
            self._runs.clear()
        self._runs[key] = run


def _left_or_forked(attempt: AttemptEntry, message: wire.Message) -> AttemptEntry:
    """Return the fork of the message's launch if there is one, unless the message belongs before it."""
    fork = attempt.forks.get(message.launch)
    claim = attempt.claims.get(message.rank)
    step = progress_step(claim, message)
    if fork is None or was_reached_before_fork(claim, launch=message.launch, step=step):
        return attempt
    return fork
