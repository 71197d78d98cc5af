"""The store: one database, opened once per process, with a repository per noun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING

from sqlalchemy import select

from trmon.domain.errors import NotReady, needs_package
from trmon.domain.health_check import HealthCheckResult
from trmon.store import migrations
from trmon.store.database import engines_of
from trmon.store.database.engines import Engines
from trmon.store.database.sqlite import check_disk_space
from trmon.store.lake.deletions import MovedRows
from trmon.store.lake.location import LakeLocation, lake_location_of
from trmon.store.lake.planning import LakeBatches
from trmon.store.maintenance.check import check_database
from trmon.store.registry import RunRegistry
from trmon.store.repositories.alarm_budget import BudgetRecords
from trmon.store.repositories.alerts import Alerts
from trmon.store.repositories.archives import Archives
from trmon.store.repositories.attempt_places import AttemptPlaces
from trmon.store.repositories.audit import AuditLog
from trmon.store.repositories.batches import Batches
from trmon.store.repositories.deliveries import Deliveries, Outbox
from trmon.store.repositories.events import Events
from trmon.store.repositories.judging import JudgingProgress
from trmon.store.repositories.leases import Leases
from trmon.store.repositories.notes import Notes
from trmon.store.repositories.policies import Adaptations, Policies
from trmon.store.repositories.quotas import Quotas
from trmon.store.repositories.reports import NewMessages, Reports
from trmon.store.repositories.retention import Retention
from trmon.store.repositories.run_log import RunLog
from trmon.store.repositories.run_snapshots import RunSnapshots
from trmon.store.repositories.runs import Runs
from trmon.store.repositories.signals import Signals
from trmon.store.repositories.silences import Silences
from trmon.store.repositories.tokens import Tokens
from trmon.store.rows.batches import NameDictionary
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.run_locks import RunLocks

if TYPE_CHECKING:
    from trmon.store.lake.mover import LakeMover
    from trmon.store.query import Queries

LIVE_SECONDS = 90.0
"""A trainer counts as alive for this long after its last message: three heartbeats."""


class ProcessRole(Enum):
    """How a process uses a SQLite file; on PostgreSQL every process reads and writes, whatever its role.

    ALONE: the only process. WRITER: another process, the worker, reads what this one writes. READER: that worker.
    """

    ALONE = auto()
    WRITER = auto()
    READER = auto()


class Store:
    """All durable data. Any thread may read, and reads never wait for the writer; writes return futures."""

    def __init__(self, engines: Engines, *, role: ProcessRole, lake: LakeLocation | None = None) -> None:
        self.role = role
        self.is_shared = engines.is_shared
        """Whether other processes may write to the database."""
        self.folder = engines.folder
        """The folder of a SQLite file; None for PostgreSQL."""
        self._engines = engines
        self._reader = reader = engines.reader
        self._names = names = NameDictionary()
        registry = RunRegistry(live_seconds=LIVE_SECONDS)
        self.writer = writer = _build_writer(engines, registry, names)
        self.runs = Runs(reader, writer, registry=registry)
        places = AttemptPlaces(reader, lake)
        is_alone = role is ProcessRole.ALONE and not engines.is_shared
        self.reports = Reports(reader, writer, registry=registry, places=places, is_alone=is_alone)
        self.policies = Policies(reader, writer)
        self.adaptations = Adaptations(reader, writer)
        self.batches = Batches(reader, names=names, places=places)
        self.signals = Signals(reader, names=names, places=places)
        self.alerts = Alerts(reader, writer)
        self.budget_records = BudgetRecords(reader)
        self.outbox = Outbox(reader, writer)
        self.deliveries = Deliveries(reader)
        self.silences = Silences(reader, writer)
        self.notes = Notes(reader, writer)
        self.tokens = Tokens(reader, writer)
        self.audit = AuditLog(reader, writer)
        self.quotas = Quotas(reader, writer)
        self.events = Events(reader)
        self.retention = Retention(reader, writer)
        self.lake_batches = LakeBatches(reader, writer, registry=registry)
        self.moved_rows = MovedRows(reader, writer)
        self.new_messages = NewMessages(reader)
        self.judging = JudgingProgress(engines)
        self.run_snapshots = RunSnapshots(reader, names=names)
        self.archives = Archives(reader, writer, names=names, runs=self.runs)
        self.run_log = RunLog(
            reader,
            writer,
            registry=registry,
            names=names,
            places=places,
            runs=self.runs,
            reports=self.reports,
            policies=self.policies,
            adaptations=self.adaptations,
        )
        if role is not ProcessRole.READER:
            writer.start()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        role: ProcessRole = ProcessRole.ALONE,
        lake_url: str | None = None,
    ) -> Store:
        """Open a database and start its writer; a missing SQLite file is created without tables.

        Args: url: sqlite:///path/to/trmon.db or postgresql://user:password@host/database; role: a reader has no writer,
        so writes raise NotReady; lake_url: where the attempts are read that were moved.
        Errors: NotReady naming the database, or for an invalid address of a lake.
        """
        lake = None if lake_url is None else lake_location_of(lake_url)
        engines = engines_of(url)
        with engines.writing.connect():
            return cls(engines, role=role, lake=lake)

    @property
    def is_older(self) -> bool:
        """Whether the schema is older than this version's. Errors: NotReady if it is newer."""
        with self._reader.connect() as connection:
            return migrations.is_older(connection)

    def migrate(self) -> None:
        """Upgrade the schema to this version's."""
        migrations.upgrade_schema(self._engines.writing)

    def check(self) -> None:
        """Raise NotReady unless the database is readable and has this version's schema, and writes can succeed."""
        if not self.writer.alive:
            raise NotReady("the writer has stopped; restart the service")
        with self._reader.connect() as connection:
            migrations.check_revision(connection)
            for table in tables.metadata.sorted_tables:
                connection.execute(select(*table.primary_key.columns).limit(1))
        if self.folder is not None:
            check_disk_space(self.folder)

    def examine(self) -> Iterator[HealthCheckResult]:
        """Yield the results of the database's health checks. Errors: NotReady if it is unreachable."""
        return check_database(self._engines)

    def on_commit(self, listener: Callable[[frozenset[int]], None]) -> None:
        """Call a listener with the ids of the runs of each commit, on the writer's thread: it must be quick."""
        self.writer.on_commit(lambda commit: listener(commit.touched))

    def leases(self, holder: str, *, lease_seconds: float) -> Leases:
        """Return the leases of a process with a unique name; for a shared database."""
        return Leases(self._engines.writing, holder=holder, lease_seconds=lease_seconds)

    def lake(self, url: str) -> LakeMover:
        """Return what moves attempts to a lake. Errors: NotReady for an invalid URL, or without the extra `lake`."""
        location = lake_location_of(url)
        with needs_package("lake", said="TRMON_LAKE_URL is set, and the lake needs"):
            from trmon.store.lake.delta_tables import DeltaTables
            from trmon.store.lake.mover import LakeMover
        return LakeMover(
            self._reader,
            batches=self.lake_batches,
            moved_rows=self.moved_rows,
            delta_tables=DeltaTables(location),
            names=self._names,
        )

    def queries(self, lake_url: str | None) -> Queries:
        """Return what runs SQL over this database and a lake. Errors: NotReady for an invalid URL, or an extra."""
        location = None if lake_url is None else lake_location_of(lake_url)
        with needs_package("query", said="queries need"):
            from trmon.store.query import Queries
        return Queries(self._reader, names=self._names, lake=location)

    def close(self) -> None:
        """Write all queued operations, then close the database."""
        if self.writer.alive:
            self.reports.flush()
        self.writer.close()
        self._engines.dispose()


def _build_writer(engines: Engines, registry: RunRegistry, names: NameDictionary) -> GroupCommit:
    """Return the writer; after a rollback it clears all caches, which may hold rows that were undone."""
    locks = RunLocks(registry) if engines.is_shared else None
    writer = GroupCommit(engines.writing, locks=locks)
    for forget in (registry.forget, names.forget, *([locks.forget] if locks else [])):
        writer.on_rollback(forget)
    return writer
