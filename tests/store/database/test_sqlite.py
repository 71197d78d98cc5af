"""Tests SQLite errors: the message names the file, and the store keeps working."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, insert, text
from sqlalchemy.exc import IntegrityError

from tests.store.builders import append, report_intake, start_intake, stored_reports
from trmon.domain.errors import NotReady
from trmon.store import Store
from trmon.store.database import sqlite
from trmon.store.database.engines import Engines
from trmon.store.database.sqlite import SqliteStatement
from trmon.store.schema import tables


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a file: these tests apply to SQLite only."""
    return f"sqlite:///{tmp_path}/data/trmon.db"


BAD_URLS = [
    ("sqlite://", "a file"),
    ("sqlite:///:memory:", "a file"),
    ("mysql://me:secret@host/trmon", "a file"),
]


@pytest.mark.parametrize(("url", "expected"), BAD_URLS)
def test_only_file_urls_are_accepted_and_passwords_are_hidden(url: str, expected: str) -> None:
    with pytest.raises(NotReady, match=expected) as refused:
        Store.open(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file/trmon.db", "cannot create its directory"),
        ("folder", "unable to open database file; it and its directory must exist"),
        ("file", "file is not a database"),
    ],
)
def test_the_error_names_a_file_that_cannot_be_opened(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"no database" * 1000)
    with pytest.raises(NotReady, match=f"{tmp_path}/{name}: {said}"):
        Store.open(f"sqlite:///{tmp_path}/{name}")


def test_the_error_names_a_file_that_another_process_locks(tmp_path: Path) -> None:
    path = tmp_path / "trmon.db"
    engine = sqlite.writer_engine(path, busy_seconds=0.01)
    engine.connect().close()
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotReady, match="database is locked; another process writes to it"), engine.begin():
            raise AssertionError("the lock is taken")
    other.close()
    engine.dispose()


def test_a_full_disk_fails_only_the_reports_of_that_group(store: Store) -> None:
    [receipt] = append(store, start_intake())
    store.writer.submit(lambda tx: tx.connection.execute(text("PRAGMA max_page_count = 1")).close()).result()
    [future] = store.reports.append([report_intake(step=0, n=512)], now=0.0)
    error = future.exception(10)
    assert isinstance(error, NotReady)
    assert "database or disk is full; free some space" in str(error)
    store.writer.submit(lambda tx: tx.connection.execute(text("PRAGMA max_page_count = 1000000")).close()).result()
    append(store, report_intake(step=1))
    assert [stored.report.step for stored in stored_reports(store, receipt.run_id)] == [1]


def test_the_error_names_a_file_that_became_read_only(store: Store) -> None:
    append(store, start_intake())
    store.writer.submit(lambda tx: tx.connection.execute(text("PRAGMA query_only = ON")).close()).result()
    [future] = store.reports.append([report_intake()], now=0.0)
    with pytest.raises(NotReady, match="readonly database; make the file and its directory writable"):
        future.result(10)


def test_nothing_is_acknowledged_while_the_file_is_moved_away(store: Store, url: str) -> None:
    path, aside = sqlite.sqlite_file_of(url), sqlite.sqlite_file_of(url).with_name("aside")
    [receipt] = append(store, start_intake(), report_intake(step=0))[:1]
    path.rename(aside)
    [future] = store.reports.append([report_intake(step=1)], now=0.0)
    with pytest.raises(NotReady, match=rf"{path}: moved or replaced while in use; put it back"):
        future.result(10)
    with pytest.raises(NotReady, match=rf"{path}"), ThreadPoolExecutor(1) as thread:
        thread.submit(store.check).result()
    assert not path.exists(), "an empty database has taken its place"
    aside.rename(path)
    append(store, report_intake(step=1))
    assert [stored.report.step for stored in stored_reports(store, receipt.run_id)] == [0, 1]


def test_an_empty_database_is_not_ready(url: str) -> None:
    store = Store.open(url)
    with pytest.raises(NotReady, match="run `trmon migrate`"):
        store.check()
    store.close()


def test_a_closed_store_is_not_ready(store: Store) -> None:
    store.check()
    store.close()
    with pytest.raises(NotReady, match="the writer has stopped"):
        store.check()


def test_commits_are_synced_to_disk(store: Store) -> None:
    def pragmas(transaction: object) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return {name: transaction.connection.scalar(text(f"PRAGMA {name}")) for name in names}

    assert store.writer.submit(pragmas).result() == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_new_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = Store.open(f"sqlite:///{folder}/trmon.db")
    store.migrate()
    append(store, report_intake())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    store.close()
    assert modes == dict.fromkeys(("trmon.db", "trmon.db-wal", "trmon.db-shm"), 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


STATEMENT = SqliteStatement(insert(tables.project), ("name", "created_at"))
ROW = {"name": "math", "created_at": 0.0}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """The writing engine of a file without tables."""
    made = sqlite.writer_engine(tmp_path / "trmon.db")
    yield made
    made.dispose()


@pytest.fixture
def connection(engines: Engines) -> Iterator[Connection]:
    """A transaction in a migrated file."""
    with engines.writing.begin() as opened:
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
