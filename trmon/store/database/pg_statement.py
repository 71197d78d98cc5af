"""Statements for PostgreSQL that SQLAlchemy writes once and that go past it and past the driver's cursors.

A round trip costs both sides more than most of what a group writes does, so the group's statements travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ClauseElement, Connection, Dialect, make_url
from sqlalchemy.sql.compiler import SQLCompiler

from trmon.store.database.engines import check_in_transaction
from trmon.store.database.pg_parameters import packer_of
from trmon.store.database.pg_pipeline import PgPreparedStatement, pipeline_of, waits_are_deferred
from trmon.store.database.postgres import translate_driver_errors

Given = dict[str, Any]

_Dialect: Callable[..., Dialect] = make_url("postgresql+psycopg://").get_dialect()
_DIALECT = _Dialect(paramstyle="numeric_dollar")


class PgStatement:
    """A statement of a transaction that is under way.

    Errors, of each call or, where the connection is `patient`, of a later one or the commit: those of SQLAlchemy's
    connection.
    """

    def __init__(self, statement: ClauseElement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        assert isinstance(compiled, SQLCompiler)
        kinds = {name: compiled.binds[name].type.dialect_impl(_DIALECT) for name in compiled.positiontup or ()}
        self._writers = {name: kind.bind_processor(_DIALECT) for name, kind in kinds.items()}
        packers = {name: packer_of(kind, _DIALECT) for name, kind in kinds.items()}
        self._packers = [(name, pack) for name, (pack, _) in packers.items()]
        self._prepared = PgPreparedStatement(str(compiled).encode(), [form for _, form in packers.values()])

    def written(self, parameters: Mapping[str, Any]) -> Given:
        """Return parameters as they are sent."""
        return {
            name: parameters[name] if written is None else written(parameters[name])
            for name, written in self._writers.items()
        }

    def send(self, connection: Connection, given: Given) -> None:
        """Run it with parameters as they are sent; what it returns is not asked for."""
        self._put(connection, given)
        if not waits_are_deferred(connection):
            self._wait(connection)

    def rows(self, connection: Connection, given: Given) -> list[tuple[Any, ...]]:
        """Run it as `send` does, wait, and return what it returns, as it lies in the tables."""
        self._put(connection, given)
        return self._wait(connection)

    def _put(self, connection: Connection, given: Given) -> None:
        check_in_transaction(connection)
        values = [pack(given[name]) for name, pack in self._packers]
        with translate_driver_errors(connection):
            pipeline_of(connection).put(self._prepared, values)

    def _wait(self, connection: Connection) -> list[tuple[Any, ...]]:
        with translate_driver_errors(connection):
            return pipeline_of(connection).wait()
