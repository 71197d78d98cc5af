"""`trmon quota`: limits are set, replaced, listed and removed."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.command import run_here


def run(*arguments: object) -> str:
    """Run a command and return what it printed."""
    done = run_here(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_limits_are_set_listed_and_removed(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path)
    run("migrate", *data)
    shown = run("quota", "set", "math", "--runs", 3, "--bytes", 1 << 40, "--rate", 2.5, *data)
    assert shown == "math: runs 3, bytes 1099511627776, rate 2.5\n"
    assert "runs 3" in run("quota", "list", *data)
    assert run("quota", "set", "math", *data) == "math: no limit\n"
    assert "math" not in run("quota", "list", *data)
