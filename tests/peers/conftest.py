"""Collects the tests of a peer only where it is installed; `make peers` installs and runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PEERS = {
    "verl": "verl",
    "trl": "trl",
    "openrlhf": "openrlhf",
    "skyrl": "skyrl",
    "areal": "areal",
    "ms_swift": "swift",
    "transformers": "accelerate",  # without it, the Trainer of transformers refuses to start
    "lightning": "lightning",
    "trackers": "trackio",
    "findings": "mlflow",
    "examples": "lightning",
    "lab": "ray",
}
"""The package that each folder of tests needs."""
ENVIRONMENTS = {
    ".venv-peers": {"verl"},
    ".venv-trl": {"trl"},
    ".venv-trl-oldest": {"trl"},
    ".venv-examples": {"examples", "lightning", "trackers", "transformers"},
    ".venv-skyrl": {"skyrl"},
    ".venv-openrlhf": {"openrlhf"},
    ".venv-areal": {"areal"},
    ".venv-ms-swift": {"ms_swift"},
    ".venv-trackers": {"findings"},
    ".venv-lab": {"lab"},
}
"""The folders whose tests `make peers` runs in each environment: some hold parts of other frameworks too."""

chosen = ENVIRONMENTS.get(Path(sys.prefix).name, PEERS.keys())
# The whole folder: pytest loads the conftest of a folder even if it collects none of its files.
collect_ignore = [folder for folder, peer in PEERS.items() if folder not in chosen or find_spec(peer) is None]

# The wheel of verl installs a package of this name too.
sys.modules["tests"] = ModuleType("tests")
sys.modules["tests"].__path__ = [str(ROOT / "tests")]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of `trmon serve`, as the service's own environment starts it."""
    command = [os.environ.get("TRMON_SERVICE", str(ROOT / ".venv/bin/trmon")), "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("trmon_url=").strip()
        with httpx.Client(base_url=url, timeout=30.0) as client:
            yield client
        process.terminate()


def run_program(code: str, folder: Path, service: httpx.Client, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program that reports to a service, in a separate process that writes below a folder."""
    given = {
        "TRMON_URL": str(service.base_url).rstrip("/"),
        "TRMON_SPOOL_DIR": str(folder / "spool"),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        **variables,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRMON_", "WANDB_"))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**kept, **given}, capture_output=True, text=True, check=False, timeout=250)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server (`tests.client.server.Peer`) to which the next run reports, as run math/tiny."""
    from tests.client.server import run_server

    with run_server(tmp_path, monkeypatch) as peer:
        yield peer
