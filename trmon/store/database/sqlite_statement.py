"""SQLite statements that SQLAlchemy compiles once and that run without it.

The work of SQLAlchemy per call (cache key, context, result) costs several times that of SQLite itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import IntegrityError

from trmon.store.database.engines import check_in_transaction
from trmon.store.database.sqlite import explain_sqlite_error, sqlite_file_of

Row = Mapping[str, Any]

_DIALECT = sqlite.dialect()


class SqliteStatement:
    """A compiled statement that runs for rows with the same columns in the current transaction.

    Errors: those of SQLAlchemy's connection.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        """Args: columns: the columns of an insert that does not name them."""
        compiled = statement.compile(dialect=_DIALECT, column_keys=columns)
        self._text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        kinds = (compiled.binds[name].type.dialect_impl(_DIALECT) for name in self._names)
        encoders = [kind.bind_processor(_DIALECT) for kind in kinds]
        self._encoders = [(i, encode) for i, encode in enumerate(encoders) if encode is not None]

    def write(self, connection: Connection, rows: Iterable[Row]) -> None:
        """Run it for every row."""
        cursor = _cursor(connection)
        try:
            cursor.executemany(self._text, [self._values(row) for row in rows])
        except sqlite3.Error as error:
            raise self._translate(connection, error) from error

    def insert_returning_ids(self, connection: Connection, rows: Iterable[Row]) -> list[int | None]:
        """Run an insert for every row and return the new ids; None for a row that was not inserted."""
        cursor = _cursor(connection)
        try:
            return [self._insert_returning_id(cursor, row) for row in rows]
        except sqlite3.Error as error:
            raise self._translate(connection, error) from error

    def _insert_returning_id(self, cursor: DBAPICursor, row: Row) -> int | None:
        cursor.execute(self._text, self._values(row))
        return cursor.lastrowid if cursor.rowcount else None

    def _values(self, row: Row) -> list[Any]:
        values = [row[name] for name in self._names]
        for i, encode in self._encoders:
            values[i] = encode(values[i])
        return values

    def _translate(self, connection: Connection, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError):
            return explain_sqlite_error(sqlite_file_of(connection.engine.url), error)
        return IntegrityError(self._text, None, error) if isinstance(error, sqlite3.IntegrityError) else error


def _cursor(connection: Connection) -> DBAPICursor:
    check_in_transaction(connection)
    return connection.connection.cursor()
