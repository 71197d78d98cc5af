"""A lock on a directory that lasts until the process that holds it ends, however it ends and whatever it has forked.

It uses `flock` itself, not the package filelock, because trainers fork: filelock 3, which many of them have
installed, keeps the lock open in a forked child, so the hook below would be needed in any case.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from trmon_client.safety.private_files import open_private

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: a process cannot tell whether another one is alive, so it does not take over spools
    fcntl = None

FILE_NAME = "lock"

_HELD: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Holds the lock file of a directory until `release`, or until the process ends."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        _HELD.add(self)

    @classmethod
    def acquire(cls, directory: Path) -> DirectoryLock | None:
        """Return the lock; None if another process holds it, the file cannot be opened, or the system has no locks."""
        if fcntl is None:
            return None
        try:
            file = open_private(directory / FILE_NAME, "ab", buffering=0)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return cls(file)

    def release(self) -> None:
        """Release the lock; the file stays."""
        self._file.close()


def _release_in_child() -> None:
    """Close the files in a forked child: a lock lasts while any process has its file open."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
