"""Statements that are sent on: what they did is there for the next one, and what failed is never committed."""

from __future__ import annotations

from collections.abc import Iterator
from select import select as select_io

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from tests.fixtures.postgres import Postgres
from trmon.domain.errors import NotReady
from trmon.store import schema
from trmon.store.database import postgres
from trmon.store.database.sending import Sent
from trmon.store.database.upsert import insert_all, new_ids

pytestmark = pytest.mark.server("postgres")

ROW = {"name": "math", "created_at": 0.0}
PROJECT = Sent(insert(schema.project))


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    """What writes a migrated database."""
    engines = postgres.engines(postgres_url)
    yield engines.writing
    engines.dispose()


def projects(engine: Engine) -> int:
    """Return how many are committed."""
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(schema.project)) or 0


def test_what_is_sent_is_seen_by_what_is_asked_next(engine: Engine) -> None:
    with engine.connect() as connection, postgres.pipelined(connection):
        with connection.begin():
            PROJECT.send(connection, ROW)
            assert connection.scalars(select(schema.project.c.name)).all() == ["math"]
            assert len(new_ids(connection, schema.name_set, key=("names",), rows=[{"names": "a"}])) == 1
        with connection.begin():
            PROJECT.send(connection, {**ROW, "name": "code"})
    assert projects(engine) == 2


def test_what_fails_is_said_by_what_is_asked_next(engine: Engine) -> None:
    with engine.connect() as connection, postgres.pipelined(connection):
        with connection.begin() as transaction:
            PROJECT.send(connection, ROW)
            PROJECT.send(connection, ROW)
            with pytest.raises(IntegrityError):
                connection.execute(select(schema.run.c.id))
            transaction.rollback()
        with connection.begin():
            PROJECT.send(connection, ROW)
    assert projects(engine) == 1


def test_what_fails_is_said_by_the_commit_at_the_latest(engine: Engine) -> None:
    orphan = {"run_id": 1, "at": 0.0, "kind": "batch", "data": {}}

    def write(connection: Connection) -> None:
        with connection.begin():
            PROJECT.send(connection, ROW)
            insert_all(connection, schema.event, rows=[orphan])

    with engine.connect() as connection, postgres.pipelined(connection), pytest.raises(IntegrityError):
        write(connection)
    with engine.begin() as connection:
        PROJECT.send(connection, {**ROW, "name": "code"})
    assert projects(engine) == 1


def test_what_has_failed_before_the_commit_is_sent_leaves_a_connection_for_others(engine: Engine) -> None:
    def write(connection: Connection) -> None:
        with connection.begin():
            PROJECT.send(connection, ROW)
            PROJECT.send(connection, ROW)
            heard, _, _ = select_io([connection.connection.driver_connection], [], [], 30)
            assert heard

    with engine.connect() as connection, postgres.pipelined(connection), pytest.raises(IntegrityError):
        write(connection)
    assert projects(engine) == 0


def test_outside_a_pipeline_each_says_itself_what_fails(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin():
        PROJECT.send(connection, ROW)
        with pytest.raises(IntegrityError, match="project"):
            PROJECT.send(connection, ROW)


def test_a_session_that_was_ended_is_left_as_it_is(engine: Engine, postgres_server: Postgres) -> None:
    connection = engine.connect()
    with postgres.pipelined(connection):

        def write() -> None:
            with connection.begin():
                pid = connection.scalar(text("SELECT pg_backend_pid()"))
                postgres_server.execute(f"SELECT pg_terminate_backend({pid})")
                PROJECT.send(connection, ROW)

        with pytest.raises(NotReady):
            write()
    connection.close()
    assert projects(engine) == 0


def test_outside_a_transaction_nothing_is_sent(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(RuntimeError, match="transaction"):
        PROJECT.send(connection, ROW)
