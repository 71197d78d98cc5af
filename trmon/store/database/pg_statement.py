"""PostgreSQL statements that SQLAlchemy compiles once and that are sent without it and without psycopg's cursors.

A round trip costs both sides more than most statements of a group, so the group's statements are sent together.
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
