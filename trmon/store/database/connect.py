"""Connect to the kind of database that a URL names."""

from __future__ import annotations

from trmon.store.database import postgres, sqlite
from trmon.store.database.engines import Engines

POSTGRES = ("postgresql:", "postgresql+psycopg:", "postgres:")


def engines_of(url: str) -> Engines:
    """Return the engines of a database. Errors: NotReady for an invalid URL or a folder that cannot be created."""
    return postgres.postgres_engines(url) if is_shared(url) else sqlite.sqlite_engines(url)


def is_shared(url: str) -> bool:
    """Whether a URL names a database that several processes may write to."""
    return url.startswith(POSTGRES)
