"""The writing and the reading engine of a database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine


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
