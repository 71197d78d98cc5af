"""Common parts of both kinds of database: the address, the two engines, and a transaction that is retried."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from trmon.domain.errors import NotReady

POSTGRES = ("postgresql:", "postgresql+psycopg:", "postgres:")


class RetryTransaction(Exception):
    """The transaction lost a conflict with another process; nothing was written, and it runs again."""


def check_in_transaction(connection: Connection) -> None:
    """Raise RuntimeError outside a transaction, where the driver would commit each statement separately."""
    if not connection.in_transaction():
        raise RuntimeError("a statement needs a transaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of one database.

    `is_shared` means that other processes write to it too, so that caches need a refresh; `folder` is the folder of a
    SQLite file, None for PostgreSQL.
    """

    writing: Engine
    reader: Engine
    is_shared: bool = False
    folder: Path | None = None

    def dispose(self) -> None:
        """Close all connections."""
        self.reader.dispose()
        self.writing.dispose()


def parse_database_url(url: str | URL) -> URL:
    """Return a URL in its parts. Errors: NotReady, which does not repeat it: it may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise NotReady(
            "TRMON_DATABASE_URL cannot be read: expected sqlite:///path/to/trmon.db or postgresql://user@host:5432/db"
        ) from error


def is_shared(url: str) -> bool:
    """Whether a URL names a database that several processes may write to."""
    return url.startswith(POSTGRES)
