"""The lock that allows one service, or one restore, to use a SQLite file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trmon.domain.model.errors import NotReady
from trmon.store.database.connect import is_shared
from trmon.store.database.sqlite import make_database_folder, sqlite_file_of


@contextmanager
def exclusive_use(url: str) -> Iterator[None]:
    """Lock a SQLite file, which need not exist, until the block or the process ends; PostgreSQL needs no lock.

    Errors: NotReady while another process holds the lock, or if its folder cannot be created or written.
    """
    if is_shared(url):
        yield
        return
    file = sqlite_file_of(url)
    make_database_folder(file)
    # Not the database file itself: on NFS this lock and those of SQLite would conflict.
    lock = file.with_name(f"{file.name}.lock")
    try:
        held = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotReady(f"{lock}: {error.strerror}; make its directory writable for this user") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotReady(f"a service uses {file}; stop it, or choose another --data-dir") from error
        yield
    finally:
        os.close(held)
