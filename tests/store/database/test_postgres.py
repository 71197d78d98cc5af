"""Tests PostgreSQL errors: the message hides the password, and the store keeps working."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.fixtures.postgres import Postgres
from tests.store.builders import NOW, append, report_intake, stored_reports
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.identity import RunKey
from trmon.store import Store

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
