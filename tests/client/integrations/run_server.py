"""A server to which the process of a framework reports, as run math/tiny."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.server import Peer
from trmon_client.process import exit_hooks


@contextmanager
def run_server(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """Set the TRMON_ variables of the next run; at the end, finish all runs as the end of the process does."""
    for name in [name for name in os.environ if name.startswith("TRMON_")]:
        monkeypatch.delenv(name)
    with Peer() as peer:
        for name, value in {"URL": peer.url, "PROJECT": "math", "RUN": "tiny", "SPOOL_DIR": str(spool)}.items():
            monkeypatch.setenv(f"TRMON_{name}", value)
        yield peer
        exit_hooks._end_all(exit_hooks.ExitHooks._observed_end)
