"""A real store on a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trmon.store import Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a database that is not there yet."""
    return f"sqlite:///{tmp_path}/data/trmon.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A migrated store."""
    opened = Store.open(url)
    opened.migrate()
    yield opened
    opened.close()
