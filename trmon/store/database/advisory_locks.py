"""Locks that a transaction holds to its end, by number; SQLite has one writer and needs none of them."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from sqlalchemy import ARRAY, BigInteger, Connection, bindparam, func, select, text

from trmon.store.database.pg_statement import PgStatement

_CLASSES = 4
"""Numbers of runs and slots are spread over so many classes; the locks below are negative."""


class AdvisoryLock(Enum):
    """A lock that there is one of."""

    NAMES = -1
    EVENTS = -2
    MIGRATION = -3
    PRUNING = -4
    WORKERS = -5


class LockSpace(Enum):
    """What a numbered lock is over: the order of a run's messages, its other rows, or a slot's lease."""

    MESSAGES = 0
    ROWS = 1
    LEASE = 2


_numbers = func.unnest(bindparam("numbers", type_=ARRAY(BigInteger))).column_valued("number")
_EACH = PgStatement(select(func.pg_advisory_xact_lock(_numbers)))
_EACH_SHARED = PgStatement(select(func.pg_advisory_xact_lock_shared(_numbers)))
_ONE = PgStatement(text("SELECT pg_advisory_xact_lock(:number)"))
_TRY = text("SELECT pg_try_advisory_xact_lock(:number)")


def lock_number(kind: LockSpace, id_: int) -> int:
    """Return the number of a lock over one of many things."""
    return id_ * _CLASSES + kind.value


def lock_exclusively(connection: Connection, lock: AdvisoryLock) -> None:
    """Wait until this transaction is the only one that holds a lock."""
    if connection.dialect.name == "postgresql":
        _ONE.send(connection, {"number": lock.value})


def try_lock(connection: Connection, lock: AdvisoryLock) -> bool:
    """Take a lock if nobody has it, and return whether it was so."""
    return connection.dialect.name != "postgresql" or bool(connection.scalar(_TRY, {"number": lock.value}))


def lock_numbers(connection: Connection, numbers: Collection[int], *, shared: bool = False) -> None:
    """Wait for numbered locks, smallest first: two transactions that do so never wait for each other in a circle."""
    if numbers:
        (_EACH_SHARED if shared else _EACH).send(connection, {"numbers": sorted(numbers)})
