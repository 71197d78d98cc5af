"""Tests statements that bypass SQLAlchemy: same error messages, and only inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import IntegrityError

from trmon.domain.model.errors import NotReady
from trmon.store import migrations
from trmon.store.database import sqlite
from trmon.store.database.sqlite_statement import SqliteStatement
from trmon.store.schema import tables

STATEMENT = SqliteStatement(insert(tables.project), ("name", "created_at"))
ROW = {"name": "math", "created_at": 0.0}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """The writing engine of a file without tables."""
    made = sqlite.writer_engine(tmp_path / "trmon.db")
    yield made
    made.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A transaction in a migrated file."""
    migrations.upgrade_schema(engine)
    with engine.begin() as opened:
        yield opened


def test_returned_ids_match_the_rows(connection: Connection) -> None:
    names = SqliteStatement(insert(tables.name_set), ("names",))
    assert names.insert_returning_ids(connection, [{"names": "a"}, {"names": "b"}]) == [1, 2]


@pytest.mark.parametrize("run", [STATEMENT.write, STATEMENT.insert_returning_ids])
def test_a_duplicate_row_is_refused(connection: Connection, run: Callable[..., object]) -> None:
    STATEMENT.write(connection, [ROW])
    with pytest.raises(IntegrityError, match=r"project\.name"):
        run(connection, [ROW])


def test_the_error_names_the_file_and_the_remedy(engine: Engine, tmp_path: Path) -> None:
    with (
        engine.begin() as connection,
        pytest.raises(NotReady, match=rf"{tmp_path}/trmon.db: no such table: project; run"),
    ):
        STATEMENT.write(connection, [ROW])


def test_writing_outside_a_transaction_raises(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(RuntimeError, match="transaction"):
        STATEMENT.write(connection, [ROW])
