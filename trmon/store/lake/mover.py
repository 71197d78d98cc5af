"""Moves attempts to the lake: plan, append, verify, mark as moved; a repeat after any failure completes the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow.compute as pc
from sqlalchemy import Connection, Engine, func, select

from trmon.domain.errors import NotReady
from trmon.store.database.sqlite import sync_path
from trmon.store.lake import delta_schema
from trmon.store.lake.attempt_rows import AttemptRows, belongs_to
from trmon.store.lake.deletions import MovedRows
from trmon.store.lake.delta_tables import DeltaTables, OpenTable, files_with, lake_errors
from trmon.store.lake.files import (
    commit_files,
    compact_partitions,
    delete_batches_after,
    delete_runs_from,
    write_files,
)
from trmon.store.lake.planning import LakeBatch, LakeBatches, LakeMember, app_id_of, month_of, planned_batch
from trmon.store.rows.batches import NameDictionary
from trmon.store.schema import tables


def _has_batch(opened: OpenTable, batch: LakeBatch) -> bool:
    return (opened.delta.transaction_version(batch.app_id) or 0) >= batch.id


COUNTED_TABLES = (
    delta_schema.LAKE_REPORTS,
    delta_schema.LAKE_NOTICES,
    delta_schema.LAKE_BATCHES,
    delta_schema.LAKE_DECISIONS,
    delta_schema.LAKE_SIGNAL_CHUNKS,
    delta_schema.LAKE_CHUNK_AXES,
    delta_schema.LAKE_ATTEMPTS,
)
"""The tables whose rows cannot change once an attempt is sealed: those that retention deletes, and the attempts."""


def counts_in_database(connection: Connection, member: LakeMember, table: delta_schema.LakeTable) -> int:
    """Return the number of rows that a batch moves of a member."""
    if member.is_late and table not in delta_schema.LATE_TABLES:
        return 0
    if table is delta_schema.LAKE_ATTEMPTS:
        return 1
    source = tables.batch if table.archived is None else table.archived.table
    is_member = source.c.attempt_id == member.attempt_id if table.archived is None else belongs_to(member, table)
    return connection.scalars(select(func.count()).select_from(source).where(is_member)).one()


def counts_in_lake(opened: OpenTable, batch: LakeBatch) -> Counter[int]:
    """Return the number of rows of a batch by attempt, reading only the files that can have some."""
    entries = files_with(opened.delta, "lake_batch_id", batch.id)
    if not entries:
        return Counter()
    dataset = opened.folder.dataset(entry["path"] for entry in entries)
    is_of_batch = (pc.field("lake_batch_id") == batch.id) & (pc.field("database_id") == batch.database_id)
    counts: Counter[int] = Counter()
    for piece in dataset.scanner(columns=["attempt_id"], filter=is_of_batch).to_batches():
        for entry in piece.column("attempt_id").value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts


VACUUM_HOURS = 168
"""Files that no version of the last week names are deleted: readers and movers that still use one have finished."""
SYNCED_VERSIONS = 8
"""Newest entries of a local table's log that are made durable: a batch adds one, and a table few more meanwhile."""


COMPACTION_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePass:
    """The outcome of a pass: the lake batches that moved, and how many rows, runs and files it deleted or merged."""

    batches: tuple[LakeBatch, ...]
    deleted_rows: int
    deleted_runs: int
    merged_files: int


class LakeMover:
    """Moves attempts of one database to one lake; two movers at once do each other's work, once."""

    def __init__(
        self,
        reader: Engine,
        *,
        batches: LakeBatches,
        moved_rows: MovedRows,
        delta_tables: DeltaTables,
        names: NameDictionary,
    ) -> None:
        self._reader = reader
        self._batches = batches
        self._moved_rows = moved_rows
        self._delta_tables = delta_tables
        self._rows = AttemptRows(reader, names)
        self._compacted_at: float | None = None

    def run_pass(
        self, *, now: float, after_seconds: float, may_continue: Callable[[], bool] = lambda: True
    ) -> LakePass:
        """Move all attempts that can move and delete their rows; run again after an error, nothing is lost.

        Args: now: seconds on the server's clock; after_seconds: how long a run must have been idle; may_continue:
        called between steps.
        Errors: NotReady if the lake cannot be read or written, or has other rows than the database.
        """
        moved: list[LakeBatch] = []
        n_rows = 0
        while may_continue() and (batch := self.move_next(now=now, after_seconds=after_seconds)) is not None:
            moved.append(batch)
            n_rows += self._moved_rows.delete(may_continue=may_continue)
        # What an earlier pass moved and did not delete, since it was stopped.
        n_rows += self._moved_rows.delete(may_continue=may_continue)
        n_runs = self.delete_runs(now=now) if may_continue() else 0
        n_files = 0
        if may_continue() and (self._compacted_at is None or now - self._compacted_at >= COMPACTION_SECONDS):
            for found in self._tables():
                with lake_errors(self._delta_tables.location):
                    n_files += compact_partitions(found, before_month=month_of(now))
                    found.delta.update_incremental()
                    found.delta.create_checkpoint()
                    found.delta.cleanup_metadata()
                    found.delta.vacuum(retention_hours=VACUUM_HOURS, dry_run=False, full=True)
            self._compacted_at = now
        return LakePass(batches=tuple(moved), deleted_rows=n_rows, deleted_runs=n_runs, merged_files=n_files)

    def move_next(
        self, *, now: float, after_seconds: float, at_point: Callable[[str], None] = lambda _: None
    ) -> LakeBatch | None:
        """Complete the planned batch, or plan and move the next one; None if no attempt can move.

        Args: now: seconds on the server's clock; after_seconds: how long a run must have been idle; at_point: called
        with what has happened, after each step.
        Errors: NotReady if the lake cannot be written or has other rows than the database; nothing is lost.
        """
        self.check()
        batch = self._batches.plan(now=now, after_seconds=after_seconds)
        if batch is None:
            return None
        at_point("planned")
        for table in delta_schema.LAKE_TABLES:
            self._append(table, batch, at_point)
        for table in COUNTED_TABLES:
            self._verify(table, batch)
        for table in delta_schema.LAKE_TABLES:
            self._sync_log(table)
        at_point("verified")
        self._batches.finish(batch, now=now)
        at_point("finished")
        return batch

    def _append(self, table: delta_schema.LakeTable, batch: LakeBatch, at_point: Callable[[str], None]) -> None:
        found = self._delta_tables.find(table)
        if found is not None and _has_batch(found, batch):
            return
        pieces = self._rows.read(batch, table)
        first = next(pieces, None)
        if first is None:
            return
        # From here to the commit the table must not be refreshed: the commit fails if another mover has committed the
        # same batch since the version that is checked here, and only then none is doubled.
        found = self._delta_tables.find_or_create(table)
        if _has_batch(found, batch):
            return
        with lake_errors(self._delta_tables.location):
            added = write_files(chain([first], pieces), found)
            at_point(f"{table.name} written")
            commit_files(found, added, app_id=batch.app_id, version=batch.id)
        at_point(f"{table.name} committed")

    def delete_runs(self, *, now: float) -> int:
        """Delete the rows of deleted runs from every table, and return the number of runs; safe to repeat.

        Nothing is deleted while a batch is planned, since another mover may still append rows of such a run.
        Errors: NotReady if the lake cannot be written.
        """
        run_ids = self._batches.pending_deletions()
        if not run_ids or self._batches.planned() is not None:
            return 0
        database_id = self._batches.database_id()
        for found in self._tables():
            with lake_errors(self._delta_tables.location):
                delete_runs_from(found, database_id=database_id, run_ids=run_ids)
        self._batches.finish_deletions(run_ids, now=now)
        return len(run_ids)

    def _tables(self) -> Iterator[OpenTable]:
        return filter(None, map(self._delta_tables.find, delta_schema.LAKE_TABLES))

    def check(self) -> None:
        """Raise NotReady if the lake cannot be read, or has batches that the database does not know.

        Such a database was restored from a backup that is older than its newest lake batch.
        """
        # In this order, since another mover plans a batch before it appends to the lake.
        in_lake, newest = self._newest_in_lake(), self._batches.newest_id()
        if in_lake > newest:
            raise NotReady(
                f"the lake has batch {in_lake} and the database knows {newest}: it was restored from a backup; "
                "nothing moves; see `trmon lake rollback`"
            )

    def roll_back(self, *, now: float) -> int:
        """Delete from the lake the batches that the database does not know, and return their number; safe to repeat.

        The attempts that the database has again move again, in batches with later numbers.
        Errors: NotReady if the lake cannot be written.
        """
        in_lake, newest = self._newest_in_lake(), self._batches.newest_id()
        if in_lake <= newest:
            return 0
        database_id = self._batches.database_id()
        for found in self._tables():
            with lake_errors(self._delta_tables.location):
                delete_batches_after(found, database_id=database_id, batch_id=newest)
        self._batches.skip_to(in_lake, now=now)
        return in_lake - newest

    def _newest_in_lake(self) -> int:
        app_id = app_id_of(self._batches.database_id())
        return max((found.delta.transaction_version(app_id) or 0 for found in self._tables()), default=0)

    def _verify(self, table: delta_schema.LakeTable, batch: LakeBatch) -> None:
        found = self._delta_tables.find(table)
        with lake_errors(self._delta_tables.location):
            in_lake = {} if found is None else counts_in_lake(found, batch)
        with self._reader.connect() as connection:
            # Without the attempts of runs that were deleted since the plan; none if another mover has finished it. Of
            # the same snapshot as the counts: rows of a finished batch may be deleted at any time.
            kept = planned_batch(connection)
            for member in kept.members if kept is not None and kept.id == batch.id else ():
                expected = counts_in_database(connection, member, table)
                if in_lake.get(member.attempt_id, 0) != expected:
                    raise NotReady(
                        f"the lake has {in_lake.get(member.attempt_id, 0)} of {expected} rows of "
                        f"{member.project}/{member.run} in {table.name}; the database keeps them all"
                    )

    def _sync_log(self, table: delta_schema.LakeTable) -> None:
        if self._delta_tables.location.is_remote:
            return
        log = Path(self._delta_tables.location.table_uri(table.name)) / "_delta_log"
        if log.is_dir():
            with lake_errors(self._delta_tables.location):
                for file in sorted(log.glob("*.json"))[-SYNCED_VERSIONS:]:
                    sync_path(file)
                sync_path(log)
