"""What a driver of verl sends, as a server receives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.integrations.run_server import run_server
from tests.client.server import Peer
from trmon_client.integrations.verl.tracking_hooks import TrackingHooks


@pytest.fixture(scope="session")
def hooks() -> TrackingHooks:
    """The wrappers, as verl's import of the plugin installs them."""
    wrappers = TrackingHooks()
    wrappers.hook()
    return wrappers


@pytest.fixture
def server(hooks: TrackingHooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server to which the next run reports, under the names that verl gives it."""
    with run_server(tmp_path, monkeypatch) as peer:
        for name in ("PROJECT", "RUN"):
            monkeypatch.delenv(f"TRMON_{name}")
        yield peer
