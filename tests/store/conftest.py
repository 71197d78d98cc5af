"""Provides a real store: each test that uses it runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures.databases import BACKENDS, prepare_database, url_on_backend
from tests.fixtures.postgres import Postgres
from tests.fixtures.s3 import s3_lake
from tests.store.builders import append, start_intake
from trmon.store import Store
from trmon.store.database import engines_of
from trmon.store.database.engines import Engines

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""Marks tests of files and folders, which the database has no part in."""
ON_POSTGRES = pytest.mark.parametrize("url", BACKENDS[1:], indirect=True)
"""Marks tests of what only PostgreSQL has."""


@contextmanager
def migrated_database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Yield the URL of a migrated database of the kind that a fixture's parameter names, for the tests of a file."""
    if request.param == "sqlite":
        url = f"sqlite:///{folder}/trmon.db"
        prepare_database(url)
        yield url
    else:
        server: Postgres = request.getfixturevalue("postgres_server")
        url = server.borrow(request.getfixturevalue("postgres_template"))
        yield url
        server.give_back(url)


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database for one test: a file that does not exist yet, or empty PostgreSQL tables."""
    return url_on_backend(request, tmp_path / "data" / "trmon.db")


@pytest.fixture
def migrated_url(url: str) -> str:
    """The URL of a database for one test that has all tables and no rows."""
    if url.startswith("sqlite:"):
        prepare_database(url)
    return url


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    """A migrated store without rows."""
    opened = Store.open(migrated_url)
    yield opened
    opened.close()


@pytest.fixture
def engines(migrated_url: str) -> Iterator[Engines]:
    opened = engines_of(migrated_url)
    yield opened
    opened.dispose()


@pytest.fixture
def run_id(store: Store) -> int:
    """The id of math/grpo, whose trainer has started."""
    return append(store, start_intake())[0].run_id


@pytest.fixture
def bucket_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty lake in an object store."""
    with s3_lake(monkeypatch) as address:
        yield address
