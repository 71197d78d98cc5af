"""Spools that dead processes of the same run left behind; the first process to lock one drains it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trmon_client.core.wire.segments import SUFFIX
from trmon_client.sending.spool_lock import FILE_NAME, DirectoryLock


@dataclass(frozen=True, slots=True)
class OrphanedSpool:
    """The spool of a dead process, locked by this one, and its segments, oldest first."""

    directory: Path
    lock: DirectoryLock
    segments: tuple[Path, ...]

    def remove(self) -> None:
        """Delete the directory, which is empty by now, and release its lock."""
        delete_file(self.directory / FILE_NAME)
        remove_if_empty(self.directory)
        self.lock.release()


def adopt_orphaned_spools(run_directory: Path) -> Iterator[OrphanedSpool]:
    """Yield the spools under a run's directory that hold segments and that no living process has locked.

    A spool without segments is left alone: its process may be about to lock it.
    Errors: OSError if a directory cannot be read.
    """
    if not run_directory.is_dir():
        return
    for directory in sorted(path for path in run_directory.iterdir() if path.is_dir()):
        if not any(directory.glob(f"*{SUFFIX}")):
            continue
        lock = DirectoryLock.acquire(directory)
        if lock is None:
            continue
        segments = tuple(sorted(directory.glob(f"*{SUFFIX}")))
        if segments:
            yield OrphanedSpool(directory, lock, segments)
        else:  # another process drained it before it was locked
            lock.release()


def delete_file(path: Path) -> None:
    """Delete a file; on a read-only disk it stays, and the service will recognise what it gets again."""
    with suppress(OSError):
        path.unlink()


def remove_if_empty(directory: Path) -> None:
    """Remove a directory unless it is not empty or already gone."""
    try:
        directory.rmdir()
    except OSError:
        return
