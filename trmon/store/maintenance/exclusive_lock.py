"""The sole use of a SQLite file by one service, which alone judges its runs; or by a restore, which replaces it."""

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
    """Hold a SQLite file, there or not, against services until the block, or the process, ends; PostgreSQL is for many.

    Errors: NotReady while another one holds it, or where its folder cannot be made or written to.
    """
    if is_shared(url):
        yield
        return
    file = sqlite_file_of(url)
    make_database_folder(file)
    # Not the file itself: over NFS such a lock and SQLite's own would be the same.
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
