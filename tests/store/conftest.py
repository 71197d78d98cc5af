"""A real store, on SQLite and on PostgreSQL: every test that asks for one holds on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trmon.store import Store

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgres"))]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that is the test's own: a file that is not there yet, or tables without rows."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/data/trmon.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A migrated store."""
    opened = Store.open(url)
    opened.migrate()
    yield opened
    opened.close()
