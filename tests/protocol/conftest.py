"""The state machine over each kind of database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.databases import prepare_database
from tests.protocol.machine import Protocol
from tests.protocol.system import prepare_faults


@pytest.fixture
def on_sqlite(tmp_path: Path) -> type[Protocol]:
    """The state machine over SQLite: one service with one worker."""
    url = f"sqlite:///{tmp_path}/trmon.db"
    prepare_database(url)
    return _over(url)


@pytest.fixture
def on_postgres(postgres_url: str) -> type[Protocol]:
    """The state machine over PostgreSQL: a service and two workers with leases."""
    return _over(postgres_url)


def _over(url: str) -> type[Protocol]:
    prepare_faults(url)
    return type("ProtocolOverDatabase", (Protocol,), {"URL": url})
