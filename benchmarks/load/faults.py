"""The faults that a soak causes, each a block: it begins with the block and ends with it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

import psycopg

from tests.fixtures.postgres import Postgres
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually

DISK_BYTES = 1 << 30
FILL_BYTES = 1 << 16
SLOW_SECONDS, FREE_SECONDS = 0.3, 0.05
SLOW_INSERTS = """
CREATE FUNCTION slow_insert() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
CREATE TRIGGER slow_insert AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION slow_insert();
"""
REPLACED_SECONDS = 180.0
"""Longer than a hung process may be silent, also on a busy machine."""
FAKETIME = "faketime/libfaketimeMT.so.1"


class Victim(Protocol):
    """A part of a deployment that can be killed and restarted."""

    def pids(self) -> Sequence[int]:
        """Return the ids of its processes."""

    def kill(self) -> None:
        """Kill it, as in a crash."""

    def start(self) -> None:
        """Start it, or wait until it is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, and the shortest and the longest time that it lasts."""

    block: Callable[[], AbstractContextManager[None]]
    seconds: tuple[float, float] = (0.0, 2.0)


@contextmanager
def killed(victim: Victim) -> Iterator[None]:
    """Keep a part dead."""
    victim.kill()
    yield
    victim.start()


@contextmanager
def stopped(victim: Victim) -> Iterator[None]:
    """Keep a part's processes from running, as a machine that swaps or is paused does."""
    pids = victim.pids()
    _signal(pids, signal.SIGSTOP)
    yield
    _signal(pids, signal.SIGCONT)


@contextmanager
def frozen_until_replaced(victim: Victim) -> Iterator[None]:
    """Keep a part's processes from running until their parent has killed them."""
    pids = victim.pids()
    _signal(pids, signal.SIGSTOP)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), timeout_seconds=REPLACED_SECONDS)
    yield


@contextmanager
def attacked(sent: Iterator[None]) -> Iterator[None]:
    """Have another client send what is costly or hostile, one at a time; the first may take long to make."""
    next(sent)
    ended = Event()

    def repeat() -> None:
        while not ended.is_set():
            next(sent)

    thread = Thread(target=repeat)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Keep the file system of a folder full to the last byte."""
    filling = folder / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(FILL_BYTES)):
            pass
    yield
    filling.unlink()


@contextmanager
def locked_sqlite(path: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite file, as another program does."""
    other = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@contextmanager
def slow_sqlite(path: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite file most of the time, as a disk that takes 0.3 s for each commit does."""
    ended = Event()

    def hold() -> None:
        while not ended.wait(FREE_SECONDS):
            with locked_sqlite(path):
                ended.wait(SLOW_SECONDS)

    thread = Thread(target=hold)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def moved_away(path: Path) -> Iterator[None]:
    """Keep a SQLite database under another name."""
    aside = path.parent / "aside"
    aside.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        file.rename(aside / file.name)
    yield
    for file in aside.iterdir():
        file.rename(path.parent / file.name)
    aside.rmdir()


@contextmanager
def read_only_at_start(service: ServiceProcess, mount: Path) -> Iterator[None]:
    """Kill a service, and let it find its disk mounted read-only: it must refuse to start, and say why."""
    service.kill()
    # Its runner ends by itself, a moment later.
    eventually(lambda: _mounts("remount,ro", mount))
    try:
        refusal = service.refusal()
        assert "read-only" in refusal.lower() or "readonly" in refusal.lower(), refusal
        yield
    finally:
        assert _mounts("remount,rw", mount)
    service.start()


@contextmanager
def locked_table(database_url: str, table: str) -> Iterator[None]:
    """Hold a lock on a PostgreSQL table that keeps everybody from reading and writing it."""
    with psycopg.connect(database_url) as other, other.transaction():
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield


@contextmanager
def slow_inserts(database_url: str, table: str) -> Iterator[None]:
    """Have each INSERT into a PostgreSQL table take 0.3 s longer, as on a server that is overloaded."""
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute(SLOW_INSERTS.format(table=table, seconds=SLOW_SECONDS).encode())
        yield
        other.execute(b"DROP FUNCTION slow_insert CASCADE")


@contextmanager
def full_postgres(postgres: Postgres, disk: Path) -> Iterator[None]:
    """Keep the disk of a server full; start the server again if it has ended."""
    with full_disk(disk):
        yield
    if postgres.process.poll() is not None:
        postgres.start()
    postgres.wait()


@contextmanager
def read_only_postgres(postgres: Postgres) -> Iterator[None]:
    """Have a server refuse to write, as a standby does after a failover."""
    _set_read_only(postgres, "on")
    yield
    _set_read_only(postgres, "off")


@contextmanager
def shut_down(postgres: Postgres) -> Iterator[None]:
    """Keep a server shut down."""
    postgres.stop()
    yield
    postgres.start()


class Clock:
    """The clock of processes that run in `environment`, through libfaketime; their monotonic clock is unchanged.

    Processes need several times their CPU time under it.
    """

    def __init__(self, file: Path, *, library: Path) -> None:
        self._file = file
        self._write(0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    @contextmanager
    def shifted(self, seconds: int) -> Iterator[None]:
        """Keep the clock this far ahead, or behind with a negative number."""
        self._write(seconds)
        yield
        self._write(0)

    def _write(self, seconds: int) -> None:
        # Renamed into place: a process that reads a half-written file would keep its clock.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.replace(self._file)


def own_clock(file: Path) -> Clock:
    """Return a clock that a file sets. Errors: FileNotFoundError if libfaketime is not installed."""
    library = next(Path("/usr/lib").glob(f"*/{FAKETIME}"), None)
    if library is None:
        raise FileNotFoundError("libfaketime is not installed; as root: apt-get install libfaketime")
    return Clock(file, library=library)


@contextmanager
def own_disk(folder: Path) -> Iterator[None]:
    """Mount a file system in memory over a folder. Errors: PermissionError if mounting is not permitted."""
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True)
    if done.returncode:
        raise PermissionError(done.stderr.decode())
    try:
        yield
    finally:
        eventually(lambda: _succeeds("umount", str(folder)))


def may_mount() -> bool:
    """Whether this user may mount a file system."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def _set_read_only(postgres: Postgres, value: str) -> None:
    postgres.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    postgres.execute("SELECT pg_reload_conf()")


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _mounts(options: str, folder: Path) -> bool:
    return _succeeds("mount", "-o", options, str(folder))


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0
