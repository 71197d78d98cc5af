"""`trmon lab`: a run that is spooled, and clear errors; what it trains is tested in tests/lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command import run_here


def test_an_unknown_injection_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here("lab", "--inject", "gremlins", "--run", "mine")
    assert done.exit_code == 1
    assert "--inject: 'gremlins' must be one of quantise, stale, router" in done.stderr
    assert list(tmp_path.iterdir()) == []
