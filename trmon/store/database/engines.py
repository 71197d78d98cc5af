"""How a database is reached: the engine that writes, the engine that reads, and what may be expected of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine


class RetryTransaction(Exception):
    """The transaction has lost against another process's; nothing of it is written, and it is done once more."""


def check_in_transaction(connection: Connection) -> None:
    """Raise RuntimeError outside a transaction: what the driver runs there is on the disk, each for itself."""
    if not connection.in_transaction():
        raise RuntimeError("a statement must lie in a transaction that has begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of one database.

    `is_shared` says that other processes write to it too, so that nothing remembered of it lasts; `folder` is where
    on this machine it lies, None where it lies elsewhere.
    """

    writing: Engine
    reader: Engine
    is_shared: bool = False
    folder: Path | None = None

    def dispose(self) -> None:
        """Let go of every connection."""
        self.reader.dispose()
        self.writing.dispose()
