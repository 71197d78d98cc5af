"""A server to which ms-swift's trainer reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.integrations.run_server import run_server
from tests.client.server import Peer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server to which the next run reports, as run math/tiny."""
    with run_server(tmp_path, monkeypatch) as peer:
        yield peer
