"""Statements for PostgreSQL that are sent on without waiting for what comes back of the ones before.

A round trip costs both sides more than most of what a group writes does, so the group's statements travel together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import ClauseElement, Connection, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler

from trmon.store.database.engines import check_begun
from trmon.store.database.postgres import explained, settled

Given = dict[str, Any]

_DIALECT = make_url("postgresql+psycopg://").get_dialect()()


class Sent:
    """A statement that SQLAlchemy writes once and the driver runs, in a transaction that is under way.

    Errors, of each call or, in a pipeline, of a later one or the commit: those of SQLAlchemy's connection.
    """

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)
        self._text = str(compiled)
        kinds = {name: bound.type.dialect_impl(_DIALECT) for name, bound in compiled.binds.items()}
        self._writers = {name: kind.bind_processor(_DIALECT) for name, kind in kinds.items()}

    def written(self, parameters: Mapping[str, Any]) -> Given:
        """Return parameters as they are sent."""
        return {
            name: parameters[name] if written is None else written(parameters[name])
            for name, written in self._writers.items()
        }

    def send(self, connection: Connection, given: Given) -> None:
        """Run it with parameters as they are sent; what it returns is not asked for."""
        with self._failing(connection):
            self._execute(connection, given)

    def rows(self, connection: Connection, given: Given) -> list[tuple[Any, ...]]:
        """Run it as `send` does, wait, and return what it returns, as it lies in the tables."""
        with self._failing(connection):
            return self._execute(connection, given).fetchall()

    def _execute(self, connection: Connection, given: Given) -> psycopg.Cursor[Any]:
        check_begun(connection)
        driver: Any = connection.connection.driver_connection
        return psycopg.Cursor(driver).execute(self._text.encode(), given)

    @contextmanager
    def _failing(self, connection: Connection) -> Iterator[None]:
        try:
            with settled(connection):
                yield
        except psycopg.IntegrityError as error:
            raise IntegrityError(self._text, None, error) from error
        except psycopg.Error as error:
            raise explained(connection.engine.url, error) or error from error
