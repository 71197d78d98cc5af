"""The stored log of runs that workers read and write."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from itertools import chain
from typing import Any

import msgspec
from sqlalchemy import Engine, exists, func, or_, select

from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import Fenced
from trmon.domain.identity import BatchKey
from trmon.domain.messages import Unread
from trmon.domain.ownership import SLOTS, Fences, slot_of
from trmon.domain.pipeline.publish import Checkpoint, Frontier, RunProgress, RunUpdate
from trmon.domain.runs.attempts import ActiveLaunch
from trmon.domain.runs.run import Run, RunState
from trmon.store.database.upsert import by_columns, upsert
from trmon.store.registry import RunRegistry
from trmon.store.repositories.attempt_places import AttemptPlaces, MovedAttempts
from trmon.store.repositories.leases import check_fences
from trmon.store.repositories.policies import Adaptations, Policies, write_policy
from trmon.store.repositories.reports import Reports
from trmon.store.repositories.run_snapshots import OPEN_STATES, UNREAD, UNREAD_NOTICES
from trmon.store.repositories.runs import Runs
from trmon.store.rows.batches import (
    BatchSelection,
    NameDictionary,
    is_batch,
    read_batches,
    selected_batches,
    write_batches,
    write_decisions,
)
from trmon.store.rows.mapping import RowMapping
from trmon.store.rows.messages import newer_rows, unread_notice, unread_report
from trmon.store.rows.runs import (
    ALERT_MAPPING,
    clear_acknowledgements,
    read_runs,
    select_runs,
    update_runs,
    write_alert_events,
    write_alerts,
    write_deliveries,
    write_tags,
)
from trmon.store.rows.signal_chunks import extend_chunks
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction


def write_run_updates(transaction: Transaction, updates: Sequence[RunUpdate], *, names: NameDictionary) -> None:
    """Write updates: batches, decisions and alerts replace stored ones; stored transitions and deliveries stay."""
    connection = transaction.connection
    batches = list(chain.from_iterable(update.batches for update in updates))
    write_batches(connection, batches, names=names)
    write_decisions(connection, list(chain.from_iterable(update.decisions for update in updates)))
    extend_chunks(connection, batches, names=names)
    events = list(chain.from_iterable(update.alert_events for update in updates))
    clear_acknowledgements(connection, events)
    write_alerts(connection, list(chain.from_iterable(update.alerts for update in updates)))
    write_alert_events(connection, events)
    deliveries = list(chain.from_iterable(update.deliveries for update in updates))
    write_deliveries(connection, deliveries)
    transaction.receivers.update(delivery.receiver for delivery in deliveries)
    transaction.events.extend((update.run_id, event) for update in updates for event in update.events)
    for update in updates:
        if update.policy is not None:
            write_policy(connection, update.run_id, version=update.policy)
            transaction.edited.add(update.run_id)
        write_tags(connection, update.run_id, tags=update.tags)
    update_runs(connection, {update.run_id: _run_columns(update) for update in updates})
    for rows in by_columns(map(_state_row, updates)):
        upsert(connection, tables.run_state, key=("run_id",), rows=rows)


def _run_columns(update: RunUpdate) -> dict[str, Any]:
    columns = {
        "state": update.state and update.state.value,
        "last_step": update.last_step,
        "attempt_id": update.attempt_id,
        "owner": update.owner,
        "config": update.config or None,
        "mode": update.mode,
        "ending": msgspec.to_builtins(update.ending),
        "warnings": msgspec.to_builtins(update.warnings),
    }
    return {name: value for name, value in columns.items() if value is not None}


def _state_row(update: RunUpdate) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": update.run_id, **asdict(update.frontier)}
    if update.checkpoint is not None:
        row |= asdict(update.checkpoint)
    return row if update.outlook is None else row | {"outlook": update.outlook}


_ENDED_STATES = [state.value for state in RunState if state.ended]
_LAUNCH = RowMapping(ActiveLaunch)


class RunLog(Repository):
    """The stored log of runs; all methods are safe to call from any thread."""

    def __init__(
        self,
        reader: Engine,
        writer: GroupCommit,
        *,
        registry: RunRegistry,
        names: NameDictionary,
        places: AttemptPlaces,
        runs: Runs,
        reports: Reports,
        policies: Policies,
        adaptations: Adaptations,
    ) -> None:
        super().__init__(reader, writer)
        self._registry = registry
        self._names = names
        self._places = places
        self.runs = runs
        self.reports = reports
        self.policies = policies
        self.adaptations = adaptations
        self._revisions: Counter[int] = Counter()
        writer.on_commit(lambda commit: self._revisions.update(commit.edited))

    def unfinished_runs(self, slots: Collection[int] | None = None) -> list[Run]:
        """Return the runs, of some slots or all, that have not ended or have messages after their frontier."""
        run, has_unread = tables.run.c, or_(exists().where(UNREAD), exists().where(UNREAD_NOTICES))
        found = (
            select_runs(EVERYTHING).outerjoin(tables.run_state).where(or_(run.state.not_in(_ENDED_STATES), has_unread))
        )
        if slots is not None:
            found = found.where((run.id % SLOTS).in_(slots))
        with self._reader.connect() as connection:
            return read_runs(connection, found.order_by(run.id))

    def revision(self, run_id: int) -> int:
        """Return a number that changes when a process other than the run's worker edits it."""
        return self._revisions[run_id]

    def progress(self, run_id: int) -> RunProgress:
        """Return the frontier of the run, zeros for a new one, and the newest checkpoint of its state."""
        found = select(tables.run_state).where(tables.run_state.c.run_id == run_id)
        return next(map(_progress_from_row, self._rows(found)), RunProgress())

    def unread(self, read: Mapping[int, Frontier], *, limit: int) -> dict[int, Unread] | None:
        """Return the unread messages of runs; None if there are `limit` or more reports or notices."""
        notices_after = {run_id: frontier.notice_id for run_id, frontier in read.items()}
        reports_after = {run_id: frontier.report_id for run_id, frontier in read.items()}
        with self._reader.connect() as connection:
            notices = newer_rows(connection, tables.notice, notices_after, limit=limit)
            reports = newer_rows(connection, tables.report, reports_after, limit=limit)
        if len(notices) >= limit or len(reports) >= limit:
            return None
        unread = {run_id: Unread() for run_id in read}
        for row in notices:
            unread[row.run_id].notices.append(unread_notice(row))
        for row in reports:
            unread[row.run_id].reports.append(unread_report(row))
        return unread

    def batch(self, key: BatchKey) -> BatchRow | None:
        """Return a closed batch, or None."""
        found = select(tables.batch).where(*is_batch(tables.batch, key))
        with self._reader.connect() as connection:
            rows = read_batches(connection, found, names=self._names)
            # Mostly the row is there, and then it is as it was when its attempt was moved, if it was.
            moved = MovedAttempts() if rows else self._places.among(connection, [key.attempt_id])
        if moved:
            rows = moved.history.batches(moved.ids, BatchSelection(step=key.step, limit=sys.maxsize))
        return next((row for row in rows if row.key == key), None)

    def batches_after(self, run_id: int, ordinal: int, *, limit: int, with_moved: bool = True) -> list[BatchRow]:
        """Return the closed batches of the run with a larger ordinal, in that order; also those in the lake."""
        table, selection = tables.batch, BatchSelection(after=ordinal, limit=limit)
        with self._reader.connect() as connection:
            moved = self._places.of_run(connection, run_id)
            found = select(table).where(table.c.run_id == run_id, *moved.left_out(table.c.attempt_id))
            rows = read_batches(connection, selected_batches(found, selection), names=self._names)
        return selection.merged(rows, moved.history.batches(moved.ids, selection)) if moved and with_moved else rows

    def open_alerts(self, run_id: int) -> list[Alert]:
        """Return the run's pending and firing alerts."""
        table = tables.alert.c
        found = select(tables.alert).where(table.run_id == run_id, table.state.in_(OPEN_STATES))
        return list(map(ALERT_MAPPING.from_row, self._rows(found.order_by(table.id))))

    def last_seen(self, run_id: int) -> float | None:
        """Return the arrival time of the run's newest message, heartbeats included."""
        seen = self._registry.last_seen.get(run_id)
        if seen is not None:
            return seen
        newest = select(func.max(tables.claim.c.seen_at)).where(tables.claim.c.run_id == run_id)
        found: float | None = self._values(newest)[0]
        return found

    def active_launches(self, run_id: int, *, since: float) -> list[ActiveLaunch]:
        """Return the launches of a run, by rank, that sent a heartbeat or began after a time."""
        claim, attempt = tables.claim.c, tables.attempt
        is_active = (claim.run_id == run_id) & (func.coalesce(claim.beat_at, claim.began_at) > since)
        found = (
            select(tables.claim, attempt.c.name.label("attempt"))
            .join_from(tables.claim, attempt)
            .where(is_active, claim.began_at.is_not(None))
        )
        return [_LAUNCH.from_row(row) for row in self._rows(found)]

    def commit(self, updates: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Write updates, each in one transaction; each future resolves when its update is on disk, or raises Fenced.

        Args: fences: the fences of the slots that the worker holds; None if there is only one worker.
        """
        run_ids = [update.run_id for update in updates]
        items = [(update, None if fences is None else fences[slot_of(update.run_id)]) for update in updates]
        return self._writer.submit_each(self._write, items, runs=run_ids)

    def count_edits(self, run_ids: Collection[int]) -> None:
        """Count edits of runs by another process."""
        self._revisions.update(run_ids)

    def set_revisions(self, revisions: Mapping[int, int]) -> None:
        """Set the revisions of runs to those of another process."""
        for run_id, revision in revisions.items():
            self._revisions[run_id] = revision

    def _write(self, transaction: Transaction, items: Sequence[tuple[RunUpdate, int | None]]) -> list[None]:
        if fences := _common_fences(items):
            check_fences(transaction.connection, fences)
        write_run_updates(transaction, [update for update, _ in items], names=self._names)
        return [None] * len(items)


def _common_fences(items: Sequence[tuple[RunUpdate, int | None]]) -> dict[int, int]:
    """Return the fence of each slot. Errors: Fenced if a slot was lost and taken again between two updates."""
    fences: dict[int, int] = {}
    for update, fence in items:
        slot = slot_of(update.run_id)
        if fence is not None and fences.setdefault(slot, fence) != fence:
            raise Fenced(f"slot {slot} was lost and taken again")
    return fences


def _progress_from_row(row: Any) -> RunProgress:
    frontier = Frontier(report_id=row.report_id, notice_id=row.notice_id)
    if row.state is None:
        return RunProgress(frontier=frontier, moved_ordinal=row.ordinal or 0)
    checkpoint = Checkpoint(ordinal=row.ordinal, version=row.version, state=row.state)
    return RunProgress(frontier=frontier, checkpoint=checkpoint)
