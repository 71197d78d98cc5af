"""PostgreSQL: errors hide the password and the store keeps working; pipelined statements never commit a failed one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Connection,
    Double,
    Engine,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from tests.fixtures.postgres import Postgres
from tests.store.builders import NOW, append, report_intake, stored_reports
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.identity import RunKey
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.database.pg_pipeline import defer_waits
from trmon.store.database.pg_statement import PgStatement
from trmon.store.database.upsert import insert_new_ids
from trmon.store.schema import tables

pytestmark = pytest.mark.server("postgres")


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of a database: these tests apply to PostgreSQL only."""
    return postgres_url


def test_the_error_names_an_unreachable_server() -> None:
    with pytest.raises(NotReady, match=r"postgresql://me:\*\*\*@127.0.0.1:1/trmon: .*nothing listens there") as said:
        Store.open("postgresql://me:secret@127.0.0.1:1/trmon")
    assert "secret" not in str(said.value)


def test_the_error_names_a_missing_database(postgres_url: str) -> None:
    with pytest.raises(NotReady, match=r'database "nowhere" does not exist; create it'):
        Store.open(postgres_url.rsplit("/", 1)[0] + "/nowhere")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_common_url_schemes_are_accepted(postgres_url: str, scheme: str) -> None:
    store = Store.open(postgres_url.replace("postgresql", scheme, 1))
    store.check()
    assert (store.is_shared, store.folder) == (True, None)
    store.close()


def test_an_unsupported_character_is_refused(store: Store) -> None:
    append(store, report_intake())
    with pytest.raises(InvalidInput, match="NUL"):
        store.runs.list(access=EVERYTHING, tag="a\0")
    refused = store.runs.update(RunKey("math", "grpo"), access=EVERYTHING, now=NOW, owner="a\0")
    with pytest.raises(InvalidInput, match="NUL"):
        refused.result(30)
    append(store, report_intake(step=1))


def test_a_terminated_session_fails_one_group_and_one_read(postgres_server: Postgres, store: Store) -> None:
    append(store, report_intake(step=0))
    store.check()
    postgres_server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trmon'")
    [lost] = store.reports.append([report_intake(step=1)], now=NOW)
    assert isinstance(lost.exception(30), NotReady)
    with pytest.raises(NotReady, match="terminating connection"):
        store.check()
    append(store, report_intake(step=1))
    assert [found.report.step for found in stored_reports(store, 1)] == [0, 1]


def test_locks_of_a_stopped_process_are_released(store: Store) -> None:
    def limits(name: str) -> str:
        return store.writer.submit(lambda tx: str(tx.connection.scalar(text(f"SHOW {name}")))).result(30)

    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
    assert [limits(name) for name in names] == ["10s", "10s", "1min"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (BigInteger(), [0, -1, 2**63 - 1, -(2**63), None]),
        (Integer(), [1, -(2**31), None]),
        (Double(), [0.1, -math.inf, 5e-324, None]),
        (Boolean(), [True, False, None]),
        (Text(), ["", "grüße 🦙", "NULL", '{"a,b"}', None]),
        (LargeBinary(), [b"", bytes(range(256)), None]),
    ],
)
def test_an_array_round_trips(engine: Engine, kind: TypeEngine[Any], values: list[Any]) -> None:
    statement = PgStatement(select(bindparam("given", type_=ARRAY(kind, dimensions=1))))
    with engine.begin() as connection:
        for given in (values, values[:1], [], [None]):
            assert statement.rows(connection, statement.encode({"given": given})) == [(given,)]


ROW = {"name": "math", "created_at": 0.0}
PROJECT = PgStatement(insert(tables.project))


@pytest.fixture
def engine(engines: Engines) -> Engine:
    return engines.writing


def projects(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(tables.project)) or 0


def test_the_next_query_sees_sent_statements(engine: Engine) -> None:
    with engine.connect() as connection, defer_waits(connection):
        with connection.begin():
            PROJECT.send(connection, ROW)
            assert connection.scalars(select(tables.project.c.name)).all() == ["math"]
            assert len(insert_new_ids(connection, tables.name_set, key=("names",), rows=[{"names": "a"}])) == 1
        with connection.begin():
            PROJECT.send(connection, {**ROW, "name": "code"})
    assert projects(engine) == 2


def test_the_next_query_raises_the_error_of_a_sent_statement(engine: Engine) -> None:
    with engine.connect() as connection, defer_waits(connection):
        with connection.begin() as transaction:
            PROJECT.send(connection, ROW)
            PROJECT.send(connection, ROW)
            with pytest.raises(IntegrityError):
                connection.execute(select(tables.run.c.id))
            transaction.rollback()
        with connection.begin():
            PROJECT.send(connection, ROW)
    assert projects(engine) == 1


def test_the_commit_raises_the_error_of_a_sent_statement_and_the_connection_is_usable(engine: Engine) -> None:
    def write(connection: Connection, *rows: dict[str, object]) -> None:
        with connection.begin():
            for row in rows:
                PROJECT.send(connection, row)

    with engine.connect() as connection:
        with defer_waits(connection), pytest.raises(IntegrityError):
            write(connection, ROW, ROW, {**ROW, "name": "code"})
        write(connection, {**ROW, "name": "code"})
    assert projects(engine) == 1


def test_large_requests_and_responses_in_a_pipeline_do_not_deadlock(engine: Engine) -> None:
    echo = PgStatement(select(bindparam("given", type_=ARRAY(LargeBinary, dimensions=1))))
    with engine.connect() as connection, defer_waits(connection), connection.begin():
        for number in range(200):
            echo.send(connection, {"given": [bytes([number]) * 200_000]})
        assert echo.rows(connection, {"given": [b"last"]}) == [([b"last"],)]


def test_other_statements_of_the_driver_keep_prepared_statements(engine: Engine) -> None:
    with engine.connect() as connection:
        with connection.begin() as transaction:
            PROJECT.send(connection, ROW)
            for _ in range(10):
                connection.execute(select(tables.project.c.name))
            connection.execute(text("CREATE TABLE passing ()"))
            connection.execute(text("DROP TABLE passing"))
            transaction.rollback()
        with connection.begin():
            PROJECT.send(connection, ROW)
    assert projects(engine) == 1


def test_a_failure_leaves_no_extra_prepared_statements(engine: Engine) -> None:
    def write_twice(connection: Connection) -> None:
        with connection.begin():
            PROJECT.send(connection, ROW)
            PROJECT.send(connection, ROW)

    with engine.connect() as connection:
        for _ in range(5):
            with pytest.raises(IntegrityError):
                write_twice(connection)
        with connection.begin():
            PROJECT.send(connection, ROW)
            assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 2
    assert projects(engine) == 1


def test_without_deferred_waits_each_statement_raises_its_own_error(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin():
        PROJECT.send(connection, ROW)
        with pytest.raises(IntegrityError, match="project"):
            PROJECT.send(connection, ROW)
    with engine.connect() as connection, pytest.raises(RuntimeError, match="transaction"):
        PROJECT.send(connection, ROW)


def test_a_terminated_session_raises_not_ready_and_commits_nothing(engine: Engine, postgres_server: Postgres) -> None:
    connection = engine.connect()
    with defer_waits(connection):

        def write() -> None:
            with connection.begin():
                pid = connection.scalar(text("SELECT pg_backend_pid()"))
                postgres_server.execute(f"SELECT pg_terminate_backend({pid})")
                PROJECT.send(connection, ROW)

        with pytest.raises(NotReady):
            write()
    connection.close()
    assert projects(engine) == 0
