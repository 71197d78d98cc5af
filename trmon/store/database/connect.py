"""Which kind of database a URL names."""

from __future__ import annotations

from trmon.store.database import postgres, sqlite
from trmon.store.database.engines import Engines

POSTGRES = ("postgresql:", "postgresql+psycopg:", "postgres:")


def engines_of(url: str) -> Engines:
    """Return the engines of a database. Errors: NotReady for a URL that is none, or a folder that cannot be made."""
    return postgres.postgres_engines(url) if is_shared(url) else sqlite.sqlite_engines(url)


def is_shared(url: str) -> bool:
    """Whether several processes may write to the database of a URL."""
    return url.startswith(POSTGRES)
