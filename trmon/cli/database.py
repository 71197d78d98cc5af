"""What commands that open the database share."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from trmon.cli.command import read_settings
from trmon.domain.access import EVERYTHING, Access
from trmon.store import Store
from trmon.store.database.engines import is_shared
from trmon.store.database.sqlite import check_file_exists, exclusive_use, sqlite_file_of


def operator() -> Access:
    """Return the permissions of whoever runs a command with access to the database, by the name of the user."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Access(name=f"cli:{user}", scopes=EVERYTHING.scopes)


@contextmanager
def open_store(data_dir: Path | None, *, making: bool = False) -> Iterator[Store]:
    """Open the database for one command: as it is or, with `making`, created and migrated to this version.

    Errors: NotReady if it does not exist or has another schema, or if it must be migrated while a service uses it.
    """
    settings = read_settings(data_dir=data_dir)
    url = settings.store_url
    if not making and not is_shared(url):
        check_file_exists(sqlite_file_of(url))
    store = Store.open(url, lake_url=settings.lake_url)
    try:
        if making:
            with exclusive_use(url) if store.is_older else nullcontext():
                store.migrate()
        else:
            store.check()
        yield store
    finally:
        store.close()
