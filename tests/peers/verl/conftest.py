"""What a driver of verl sends, as a server receives it."""

from __future__ import annotations

import pytest

from tests.client.server import Peer
from trmon_client.integrations.verl.hooks import TrackingHooks


@pytest.fixture(scope="session")
def hooks() -> TrackingHooks:
    """The wrappers, as verl's import of the plugin installs them."""
    wrappers = TrackingHooks()
    wrappers.hook()
    return wrappers


@pytest.fixture
def server(hooks: TrackingHooks, server: Peer, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A server to which the next run reports, under the names that verl gives it."""
    for name in ("PROJECT", "RUN"):
        monkeypatch.delenv(f"TRMON_{name}")
    return server
