"""PostgreSQL advisory locks that a transaction holds until its end; SQLite has one writer and needs none."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from sqlalchemy import ARRAY, BigInteger, Connection, bindparam, func, select, text

from trmon.store.database.pg_statement import PgStatement

_SPACES = 4
"""Lock numbers of runs and slots are id * _SPACES + space; those of AdvisoryLock are negative."""


class AdvisoryLock(Enum):
    """A lock on one thing of the whole database."""

    NAMES = -1
    EVENTS = -2
    MIGRATION = -3
    PRUNING = -4
    WORKERS = -5
    LAKE = -6


class LockSpace(Enum):
    """The kinds of numbered locks: a run's messages, its other rows, or a slot's lease."""

    MESSAGES = 0
    ROWS = 1
    LEASE = 2


_numbers = func.unnest(bindparam("numbers", type_=ARRAY(BigInteger))).column_valued("number")
_EACH = PgStatement(select(func.pg_advisory_xact_lock(_numbers)))
_EACH_SHARED = PgStatement(select(func.pg_advisory_xact_lock_shared(_numbers)))
_ONE = PgStatement(text("SELECT pg_advisory_xact_lock(:number)"))
_TRY = text("SELECT pg_try_advisory_xact_lock(:number)")


def lock_number(space: LockSpace, id_: int) -> int:
    """Return the number of the lock on a run or a slot."""
    return id_ * _SPACES + space.value


def lock_exclusively(connection: Connection, lock: AdvisoryLock) -> None:
    """Acquire an exclusive lock, waiting for other transactions to release it."""
    if connection.dialect.name == "postgresql":
        _ONE.send(connection, {"number": lock.value})


def try_lock(connection: Connection, lock: AdvisoryLock) -> bool:
    """Acquire a lock without waiting, and return whether that succeeded."""
    return try_lock_number(connection, lock.value)


def lock_numbers(connection: Connection, numbers: Collection[int], *, shared: bool = False) -> None:
    """Acquire numbered locks, smallest first, which prevents deadlocks."""
    if numbers:
        (_EACH_SHARED if shared else _EACH).send(connection, {"numbers": sorted(numbers)})


def try_lock_number(connection: Connection, number: int) -> bool:
    """Acquire a numbered lock without waiting, and return whether that succeeded."""
    return connection.dialect.name != "postgresql" or bool(connection.scalar(_TRY, {"number": number}))
