"""Assign messages to runs and attempts, and create these when they first appear."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, update

from trmon.domain.model.identity import RunKey
from trmon.domain.runs.attempts import (
    Claim,
    fork_name,
    progress_step,
    renewed_claim,
    resolve_attempt,
    was_reached_before_fork,
)
from trmon.store.database.upsert import Row, upsert
from trmon.store.registry.registry_entries import (
    ArrivedMessage,
    AttemptEntry,
    RunEntry,
    insert_attempt,
    insert_run,
    read_entries,
    select_entries,
)
from trmon.store.rows.row_mapping import RowMapping
from trmon.store.rows.run_rows import has_name
from trmon.store.schema import tables
from trmon_client.core import wire

MAX_RUNS = 10_000
"""Maximum runs in memory; above it the cache is cleared, and runs are read again when a message arrives."""
_CLAIM = RowMapping(Claim)


class RunRegistry:
    """A cache of the runs that send messages, with their attempts and claims; it reads the tables on demand.

    Only the writer's thread uses it, inside a transaction; after a rollback it must be cleared with `forget`. If other
    processes write too (`is_shared`), `replace` must refresh it under locks in each transaction. Any thread may read
    `last_seen`: seconds on the server's clock by run id.
    """

    def __init__(self, *, live_seconds: float, is_shared: bool = False) -> None:
        self.is_shared = is_shared
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
            step=_step(message, claim),
            now=arrival.at,
            live_seconds=self._live_seconds,
            is_moved=attempt.is_moved,
        )
        if resolution.forks:
            name = fork_name(attempt.name, message.launch, taken=run.attempts)
            attempt = insert_attempt(connection, run, arrival=arrival, name=name, origin=attempt, reason=resolution)
        if isinstance(message, wire.Start):
            _write_start(connection, attempt, message)
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
        former = attempt.claims.get(message.rank)
        claim = renewed_claim(
            former,
            launch=message.launch,
            step=_step(message, former),
            now=arrival.at,
            is_report=isinstance(message, wire.Report),
            is_scalars=isinstance(message, wire.Scalars),
            is_end=isinstance(message, wire.Finish),
            is_heartbeat=isinstance(message, wire.Heartbeat),
        )
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
        if run is None and (run := read_entries(connection, select_entries(has_name(key))).get(key)) is not None:
            self._cache(connection, key, run)
        return run

    def _insert_run(self, connection: Connection, arrival: ArrivedMessage) -> RunEntry:
        run = insert_run(connection, arrival)
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
    step = _step(message, claim)
    if fork is None or was_reached_before_fork(claim, launch=message.launch, step=step):
        return attempt
    return fork


def _step(message: wire.Message, claim: Claim | None) -> int | None:
    return progress_step(
        claim,
        report_step=message.step if isinstance(message, wire.Report) else None,
        scalars_step=message.step if isinstance(message, wire.Scalars) else None,
    )


def _write_start(connection: Connection, attempt: AttemptEntry, start: wire.Start) -> None:
    """Write what only a start message contains; an attempt whose ranks were unverified once stays unverified."""
    values = {"world_size": start.world_size} | ({"ranks_unverified": True} if start.ranks_unverified else {})
    connection.execute(update(tables.attempt).where(tables.attempt.c.id == attempt.id).values(values))
