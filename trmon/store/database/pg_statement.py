"""PostgreSQL statements that SQLAlchemy compiles once and that are sent without it, and advisory locks.

A round trip costs both sides more than most statements of a group, so the group's statements are sent together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any

from psycopg.pq import Format
from sqlalchemy import ARRAY, BigInteger, ClauseElement, Connection, Dialect, bindparam, func, make_url, select, text
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from trmon.store.database.engines import check_in_transaction
from trmon.store.database.pg_pipeline import PgPreparedStatement, pipeline_of, waits_are_deferred
from trmon.store.database.postgres import translate_driver_errors

Packer = Callable[[Any], bytes | None]
"""Returns the encoded value; None for NULL."""

_HEAD = Struct("!iiIii")
"""Number of dimensions, NULL flag (the server ignores it), type of the items, their number, index of the first."""
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i")
_NULL = _LENGTH.pack(-1)


def _fixed_size(layout: str) -> Callable[[Any], bytes]:
    whole = Struct(f"!i{layout}")
    length, pack = Struct(f"!{layout}").size, whole.pack
    return lambda value: pack(length, value)


def _with_length(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


_ITEMS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "BIGINT": (20, _fixed_size("q")),
    "INTEGER": (23, _fixed_size("i")),
    "DOUBLE PRECISION": (701, _fixed_size("d")),
    "BOOLEAN": (16, _fixed_size("?")),
    "TEXT": (25, lambda value: _with_length(value.encode())),
    "BYTEA": (17, _with_length),
}
"""The OID of each type, and the function that encodes a value with its length."""


def packer_of(kind: TypeEngine[Any], dialect: Dialect) -> tuple[Packer, Format]:
    """Return the encoder of a type and its format: binary for arrays, text for other types."""
    if not isinstance(kind, ARRAY):
        return _text, Format.TEXT
    oid, encode = _ITEMS[kind.item_type.compile(dialect)]

    def pack(values: Sequence[Any]) -> bytes:
        if not values:
            return _EMPTY.pack(0, 0, oid)
        items = [_NULL if value is None else encode(value) for value in values]
        return b"".join((_HEAD.pack(1, 1, oid, len(items), 1), *items))

    return pack, Format.BINARY


def _text(value: str | float | None) -> bytes | None:
    return None if value is None else str(value).encode()


Parameters = dict[str, Any]

_Dialect: Callable[..., Dialect] = make_url("postgresql+psycopg://").get_dialect()
_DIALECT = _Dialect(paramstyle="numeric_dollar")


class PgStatement:
    """A compiled statement that runs in the current transaction.

    Errors: those of SQLAlchemy's connection; within `defer_waits` a later call or the commit raises them.
    """

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)
        kinds = {name: compiled.binds[name].type.dialect_impl(_DIALECT) for name in compiled.positiontup or ()}
        self._encoders = {name: kind.bind_processor(_DIALECT) for name, kind in kinds.items()}
        packers = {name: packer_of(kind, _DIALECT) for name, kind in kinds.items()}
        self._packers = [(name, pack) for name, (pack, _) in packers.items()]
        self._prepared = PgPreparedStatement(str(compiled).encode(), [form for _, form in packers.values()])

    def encode(self, parameters: Mapping[str, Any]) -> Parameters:
        """Return parameters in their stored form."""
        return {
            name: parameters[name] if encode is None else encode(parameters[name])
            for name, encode in self._encoders.items()
        }

    def send(self, connection: Connection, encoded: Parameters) -> None:
        """Run it with encoded parameters and ignore its result."""
        self._put(connection, encoded)
        if not waits_are_deferred(connection):
            self._wait(connection)

    def rows(self, connection: Connection, encoded: Parameters) -> list[tuple[Any, ...]]:
        """Run it with encoded parameters and return its rows in their stored form."""
        self._put(connection, encoded)
        return self._wait(connection)

    def _put(self, connection: Connection, encoded: Parameters) -> None:
        check_in_transaction(connection)
        values = [pack(encoded[name]) for name, pack in self._packers]
        with translate_driver_errors(connection):
            pipeline_of(connection).put(self._prepared, values)

    def _wait(self, connection: Connection) -> list[tuple[Any, ...]]:
        with translate_driver_errors(connection):
            return pipeline_of(connection).wait()


_SPACES = 4
"""Lock numbers of runs and slots are id * _SPACES + space; those of AdvisoryLock are negative."""


class AdvisoryLock(Enum):
    """A lock on one thing of the whole database."""

    NAMES = -1
    EVENTS = -2
    MIGRATION = -3
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


def lock_numbers(connection: Connection, numbers: Collection[int], *, shared: bool = False) -> None:
    """Acquire numbered locks, smallest first, which prevents deadlocks."""
    if numbers:
        (_EACH_SHARED if shared else _EACH).send(connection, {"numbers": sorted(numbers)})


def try_lock_number(connection: Connection, number: int) -> bool:
    """Acquire a numbered lock without waiting, and return whether that succeeded."""
    return connection.dialect.name != "postgresql" or bool(connection.scalar(_TRY, {"number": number}))
