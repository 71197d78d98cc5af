"""SkyRL's models need the TypedDict of Python 3.12, which typing_extensions has for earlier versions."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import typing_extensions

from tests.client.integrations.run_server import run_server
from tests.client.server import Peer

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """A server to which the next run reports, as run math/tiny."""
    with run_server(tmp_path, monkeypatch) as peer:
        yield peer
