"""The store: one database, opened once a process, and a repository for each noun."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, select

from trmon.domain.errors import NotReady
from trmon.store import migrations, schema, sqlite
from trmon.store.adaptations import Adaptations
from trmon.store.alerts import Alerts
from trmon.store.batches import Batches
from trmon.store.deliveries import Deliveries
from trmon.store.directory import Directory
from trmon.store.events import Events
from trmon.store.namesets import NameSets
from trmon.store.outbox import Outbox
from trmon.store.policies import Policies
from trmon.store.reports import Reports
from trmon.store.retention import Retention
from trmon.store.runlog import SqlRunLog
from trmon.store.runs import Runs
from trmon.store.signals import Signals
from trmon.store.silences import Silences
from trmon.store.tokens import Tokens
from trmon.store.writer import GroupCommit

LIVE_SECONDS = 90.0
"""A trainer whose last sign of life is younger still lives: three of its heartbeats."""


class Store:
    """Everything durable. Reads may come from any thread and never wait for the writer; writes return futures."""

    def __init__(self, *, reader: Engine, writing: Engine, live_seconds: float) -> None:
        self._reader = reader
        self._writing = writing
        directory, names = Directory(live_seconds=live_seconds), NameSets()
        self.writer = writer = GroupCommit(writing)
        writer.on_rollback(directory.forget)
        writer.on_rollback(names.forget)
        self.runs = Runs(reader, writer, directory=directory)
        self.reports = Reports(reader, writer, directory=directory)
        self.policies = Policies(reader, writer)
        self.adaptations = Adaptations(reader, writer)
        self.batches = Batches(reader, names=names)
        self.signals = Signals(reader, names=names)
        self.alerts = Alerts(reader, writer)
        self.outbox = Outbox(reader, writer)
        self.deliveries = Deliveries(reader)
        self.silences = Silences(reader, writer)
        self.tokens = Tokens(reader, writer)
        self.events = Events(reader)
        self.retention = Retention(reader, writer)
        self.runlog = SqlRunLog(
            reader,
            writer,
            directory=directory,
            names=names,
            runs=self.runs,
            reports=self.reports,
            policies=self.policies,
            adaptations=self.adaptations,
        )
        writer.start()

    @classmethod
    def open(cls, url: str, *, live_seconds: float = LIVE_SECONDS) -> Store:
        """Open a database and start its writer; a SQLite file that is not there is made, without tables.

        Args: url: sqlite:///path/to/trmon.db; live_seconds: how long a silent trainer keeps its attempt to itself.
        Errors: NotReady naming the path.
        """
        path = sqlite.file_of(url)
        writing, reader = sqlite.writer_engine(path), sqlite.reader_engine(path)
        with writing.connect():
            return cls(reader=reader, writing=writing, live_seconds=live_seconds)

    def migrate(self) -> None:
        """Bring the schema to this version's."""
        migrations.upgrade(self._writing)

    def check(self) -> None:
        """Raise NotReady unless the database can be read, its schema is this version's and the writer lives."""
        if not self.writer.alive:
            raise NotReady("the writer has stopped; restart the service")
        with self._reader.connect() as connection:
            connection.execute(select(schema.run.c.id).limit(1))
            migrations.check(connection)

    def on_commit(self, listener: Callable[[frozenset[int]], None]) -> None:
        """Call the listener with the ids of the runs each commit touched, on the writer's thread: it must be quick."""
        self.writer.on_commit(lambda commit: listener(commit.touched))

    def close(self) -> None:
        """Write what waits, then let go of the database."""
        if self.writer.alive:
            self.reports.flush()
        self.writer.close()
        self._reader.dispose()
        self._writing.dispose()
