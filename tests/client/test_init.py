"""The public names, and what importing and initialising the client costs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import trmon_client as trmon


def test_the_public_names_are_these() -> None:
    assert trmon.__all__ == ["BatchDecision", "Monitor", "__version__", "init"]
    assert all(hasattr(trmon, name) for name in trmon.__all__)


def test_importing_loads_neither_torch_nor_threads_nor_exit_hooks_nor_what_people_read_with() -> None:
    script = """
        import atexit, sys, threading
        before = atexit._ncallbacks()
        import logging
        before = atexit._ncallbacks()
        import trmon_client
        trmon_client.Monitor, trmon_client.init
        assert threading.active_count() == 1
        assert sys.excepthook is sys.__excepthook__
        unwanted = ("torch", "trmon", "trmon_client.api")
        print(atexit._ncallbacks() - before, *(name for name in sys.modules if name.startswith(unwanted)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    n_callbacks, *loaded = done.stdout.split()
    assert [name for name in loaded if not name.startswith("trmon_client") or name.startswith("trmon_client.api")] == []
    assert int(n_callbacks) <= 1  # concurrent.futures has its own, where a dependency imports it


def test_init_reads_the_environment_and_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRMON_PROJECT", "math")
    monkeypatch.setenv("TRMON_URL", "http://192.0.2.1:8642/")
    before = set(threading.enumerate())
    monitor = trmon.init(run="grpo", config={"lr": 1e-6})
    assert (monitor.settings.project, monitor.settings.url) == ("math", "http://192.0.2.1:8642")
    assert set(threading.enumerate()) <= before
    assert list(tmp_path.iterdir()) == []
