"""The deployment variants of the service, with all their processes."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from benchmarks.load.processes import family
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import Redis
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually

UNLIMITED = {"rate_per_second": "1000000", "rate_burst": "1000000"}
"""A single address sends for a whole fleet here."""


class Victim(Protocol):
    """A process that can be killed and restarted."""

    def kill(self) -> None:
        """Kill it, as in a crash."""

    def start(self) -> None:
        """Start it, and wait until it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A running service: its address, its processes by name, their ids, and its database's size on disk."""

    url: str
    victims: Mapping[str, Victim]
    pids: Callable[[], list[int]]
    stored_bytes: Callable[[], int]


DeploymentFactory: TypeAlias = Callable[..., AbstractContextManager[Deployment]]
"""Runs a deployment over a folder, with TRMON_* variables as keywords."""


class Backend:
    """A backend of a PostgreSQL server: if one crashes, the server ends the others and recovers by itself."""

    def __init__(self, postgres: Postgres, database_url: str) -> None:
        self._postgres = postgres
        self._database = database_url.rsplit("/", 1)[1]

    def kill(self) -> None:
        """Kill the most recently active backend."""
        [(pid,)] = self._postgres.execute(
            f"SELECT pid FROM pg_stat_activity WHERE datname = '{self._database}' ORDER BY query_start DESC LIMIT 1"
        )
        os.kill(pid, signal.SIGKILL)

    def start(self) -> None:
        """Wait until the server has recovered."""
        self._postgres.wait()


class Worker:
    """`trmon worker`, restartable."""

    def __init__(self, database_url: str, *, folder: Path, **variables: str) -> None:
        self._database_url = database_url
        self._folder = folder
        self._variables = variables
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        log = self._folder / "worker.log"
        self.process = WorkerProcess(self._database_url, log=log, **self._variables).__enter__()

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.__exit__()

    def stop(self) -> None:
        """Send SIGTERM."""
        self.process.__exit__()


class EmbeddedWorker:
    """The worker process of an embedded service, which the service restarts by itself."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._killed = 0

    @property
    def pid(self) -> int:
        """Its process id, once it exists."""
        service = self._service.process.pid
        return eventually(lambda: family([service]) - {service}, lambda found: len(found) == 1).pop()

    def kill(self) -> None:
        """Kill it."""
        self._killed = self.pid
        os.kill(self._killed, signal.SIGKILL)

    def start(self) -> None:
        """Wait until the replacement has opened the database."""
        eventually(lambda: self.pid, lambda pid: pid != self._killed)
        eventually(lambda: any(name.suffix == ".sqlite" for name in _open_files(self.pid)))


@contextmanager
def embedded(folder: Path, **variables: str) -> Iterator[Deployment]:
    """Run `trmon serve` on SQLite, with its worker process."""
    service = ServiceProcess(data_of(folder), **UNLIMITED, **variables)
    worker = EmbeddedWorker(service)
    try:
        worker.start()
        yield Deployment(
            url=service.url,
            victims={"service": service, "its worker": worker},
            pids=lambda: [service.process.pid],
            stored_bytes=lambda: _sqlite_bytes(data_of(folder)),
        )
    finally:
        service.stop()


@contextmanager
def fleet(folder: Path, **variables: str) -> Iterator[Deployment]:
    """Run `trmon serve` and two `trmon worker`s on Redis and a PostgreSQL that syncs to disk."""
    folder.mkdir(exist_ok=True)
    with Postgres(durable=True) as postgres, Redis() as redis:
        given = {"redis_url": redis.url, **UNLIMITED, **variables}
        database_url = postgres.database()
        service = ServiceProcess(data_of(folder), database_url=database_url, **given)
        workers = [Worker(database_url, folder=folder, **given) for _ in range(2)]
        servers: dict[str, Victim] = {
            "postgres": postgres,
            "a backend of postgres": Backend(postgres, database_url),
            "redis": redis,
        }
        try:
            yield Deployment(
                url=service.url,
                victims=servers | {"api": service, "worker": workers[0]},
                pids=lambda: [
                    part.process.pid for part in (postgres, redis, service, *(one.process for one in workers))
                ],
                stored_bytes=lambda: _postgres_bytes(postgres, database_url),
            )
        finally:
            service.stop()
            for worker in workers:
                worker.stop()


def data_of(folder: Path) -> Path:
    """Return where a deployment in a folder keeps its data."""
    return folder / "data"


def _open_files(pid: int) -> Iterator[Path]:
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            yield link.readlink()


def _sqlite_bytes(folder: Path) -> int:
    """Return the size of the database without its WAL, which is as large after ten reports as after a million."""
    [path] = folder.glob("*.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def _postgres_bytes(postgres: Postgres, database_url: str) -> int:
    [(size,)] = postgres.execute(f"SELECT pg_database_size('{database_url.rsplit('/', 1)[1]}')")
    return int(size)
