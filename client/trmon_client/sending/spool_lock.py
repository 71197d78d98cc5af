"""A lock on a directory that ends with the process that holds it, however it ends and whatever it has forked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: no process can tell whether another one lives, so none takes over its spool
    fcntl = None

FILE_NAME = "lock"

_HELD: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Holds the lock file of a directory until `release`, or until the process is gone."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        _HELD.add(self)

    @classmethod
    def acquire(cls, directory: Path) -> DirectoryLock | None:
        """Return the lock, or None where another process holds it, it is not ours, or there are no locks."""
        if fcntl is None:
            return None
        try:
            file = (directory / FILE_NAME).open("ab", buffering=0)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return cls(file)

    def release(self) -> None:
        """Let go; the file stays."""
        self._file.close()


def _leave_to_the_parent() -> None:
    """A lock lasts as long as anybody has its file open: a child that outlives its parent would hold it on."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
