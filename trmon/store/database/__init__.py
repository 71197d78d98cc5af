"""SQLite and PostgreSQL: connections, statements and error messages of each."""

from __future__ import annotations

from trmon.store.database import postgres, sqlite
from trmon.store.database.engines import Engines, is_shared


def engines_of(url: str) -> Engines:
    """Return the engines of a database. Errors: NotReady for an invalid URL or a folder that cannot be created."""
    return postgres.postgres_engines(url) if is_shared(url) else sqlite.sqlite_engines(url)
