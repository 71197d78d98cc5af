"""The deployment variants of the service, with all their processes."""

from __future__ import annotations

import os
import secrets
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from benchmarks.load.faults import Victim, may_mount, own_disk
from benchmarks.load.processes import family
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import Redis
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually

REPLACED_SECONDS = 120.0
"""Time limit for a process to be replaced, also on a busy machine."""
UNLIMITED = {"rate_per_second": "1000000", "rate_burst": "1000000", "new_runs_per_hour": "0"}
"""A single address sends for a whole fleet here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A running service: its address, its parts by name, their ids, its database and the database's size on disk."""

    url: str
    parts: Mapping[str, Victim]
    pids: Callable[[], list[int]]
    database_url: str
    stored_bytes: Callable[[], int]


DeploymentFactory: TypeAlias = Callable[..., AbstractContextManager[Deployment]]
"""Runs a deployment over a folder, with TRMON_* variables as keywords."""


class Backend:
    """A backend of a PostgreSQL server: if one crashes, the server ends the others and recovers by itself."""

    def __init__(self, postgres: Postgres, database_url: str) -> None:
        self._postgres = postgres
        self._database = database_url.rsplit("/", 1)[1]

    def pids(self) -> list[int]:
        [(pid,)] = self._postgres.execute(
            f"SELECT pid FROM pg_stat_activity WHERE datname = '{self._database}' ORDER BY query_start DESC LIMIT 1"
        )
        return [pid]

    def kill(self) -> None:
        os.kill(self.pids()[0], signal.SIGKILL)

    def start(self) -> None:
        """Wait until the server has recovered."""
        self._postgres.wait()


class SupervisedChild:
    """A replica or a worker of `trmon serve --replicas --workers`, which the supervisor restarts."""

    def __init__(self, supervisor: ServiceProcess, *, command: str) -> None:
        self._supervisor = supervisor
        self._command = command.encode()
        self._killed = 0

    def pids(self) -> list[int]:
        return self.all_pids()[:1]

    def all_pids(self) -> list[int]:
        """Return all that run, the oldest first."""
        return eventually(self._running, timeout_seconds=REPLACED_SECONDS)

    def kill(self) -> None:
        [self._killed] = self.pids()
        os.kill(self._killed, signal.SIGKILL)

    def start(self) -> None:
        """Wait until the supervisor has seen its end."""
        eventually(lambda: self._killed not in family(self._supervisor.pids()))

    def _running(self) -> list[int]:
        supervisor = self._supervisor.pids()
        return sorted(pid for pid in family(supervisor).difference(supervisor) if self._command in _arguments(pid))


class EmbeddedWorker:
    """The worker process of an embedded service, which the service restarts by itself."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._killed = 0

    def pids(self) -> list[int]:
        return [self.pid]

    @property
    def pid(self) -> int:
        """Its process id, once it exists."""
        service = self._service.process.pid
        return eventually(
            lambda: family([service]) - {service}, lambda found: len(found) == 1, timeout_seconds=REPLACED_SECONDS
        ).pop()

    def kill(self) -> None:
        self._killed = self.pid
        os.kill(self._killed, signal.SIGKILL)

    def start(self) -> None:
        """Wait until the replacement has opened the database."""
        eventually(lambda: self.pid, lambda pid: pid != self._killed)
        eventually(
            lambda: any(name.suffix == ".sqlite" for name in _open_files(self.pid)), timeout_seconds=REPLACED_SECONDS
        )


@contextmanager
def embedded(
    folder: Path, *, environment: Mapping[str, str] = MappingProxyType({}), **variables: str
) -> Iterator[Deployment]:
    """Run `trmon serve` on SQLite, with its runner's process."""
    service = ServiceProcess(data_of(folder), environment=environment, **UNLIMITED, **variables)
    runner = EmbeddedWorker(service)
    try:
        runner.start()
        yield Deployment(
            url=service.url,
            parts={"service": service, "runner": runner},
            pids=service.pids,
            database_url=f"sqlite:///{sqlite_of(folder)}",
            stored_bytes=lambda: _sqlite_bytes(sqlite_of(folder)),
        )
    finally:
        service.stop()


@contextmanager
def fleet(
    folder: Path,
    *,
    replicas: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
    **variables: str,
) -> Iterator[Deployment]:
    """Run `trmon serve` with replicas and two workers on Redis and a PostgreSQL that syncs to disk.

    As root, that is a separate disk in memory, 1 GiB, which faults can fill.
    """
    with ExitStack() as stack:
        disk = Path(tempfile.gettempdir()) / f"trmon-disk-{secrets.token_hex(8)}" if may_mount() else None
        if disk is not None:
            stack.callback(disk.rmdir)
            stack.enter_context(own_disk(disk))
        postgres = stack.enter_context(Postgres(durable=True, folder=disk))
        redis = stack.enter_context(Redis())
        given = {"redis_url": redis.url, **UNLIMITED, **variables}
        database_url = postgres.database()
        service = ServiceProcess(
            data_of(folder),
            database_url=database_url,
            environment=environment,
            options=("--replicas", str(replicas), "--workers", "2"),
            **given,
        )
        try:
            yield Deployment(
                url=service.url,
                parts={
                    "supervisor": service,
                    "replica": SupervisedChild(service, command="serve"),
                    "worker": SupervisedChild(service, command="worker"),
                    "PostgreSQL": postgres,
                    "PostgreSQL backend": Backend(postgres, database_url),
                    "Redis": redis,
                },
                pids=lambda: [*service.pids(), postgres.process.pid, redis.process.pid],
                database_url=database_url,
                stored_bytes=lambda: _postgres_bytes(postgres, database_url),
            )
        finally:
            service.stop()


def data_of(folder: Path) -> Path:
    """Return where a deployment in a folder keeps its data."""
    return folder / "data"


def sqlite_of(folder: Path) -> Path:
    """Return the database file of an embedded deployment in a folder."""
    return data_of(folder) / "trmon.sqlite"


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _open_files(pid: int) -> Iterator[Path]:
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            yield link.readlink()


def _sqlite_bytes(path: Path) -> int:
    """Return the size of the database without its WAL, which is as large after ten reports as after a million."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def _postgres_bytes(postgres: Postgres, database_url: str) -> int:
    [(size,)] = postgres.execute(f"SELECT pg_database_size('{database_url.rsplit('/', 1)[1]}')")
    return int(size)
