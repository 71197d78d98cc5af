"""The process of a framework, configured by TRMON_ variables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.server import Peer, run_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server to which the next run reports, as run math/tiny."""
    with run_server(tmp_path, monkeypatch) as peer:
        yield peer
