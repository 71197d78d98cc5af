"""What a driver of verl sends, as a server receives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.server import Peer
from trmon_client.integrations.verl.tracking_hooks import TrackingHooks


@pytest.fixture(scope="session")
def hooks() -> TrackingHooks:
    """The wrappers, as verl's import of the plugin installs them."""
    wrappers = TrackingHooks()
    wrappers.hook()
    return wrappers


@pytest.fixture
def server(hooks: TrackingHooks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server to which the next run reports."""
    with Peer() as peer:
        monkeypatch.setenv("TRMON_URL", peer.url)
        yield peer
