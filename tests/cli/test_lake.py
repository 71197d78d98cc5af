"""`trmon lake` and its check by `trmon doctor`: what waits, moves and is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.command import run_here
from tests.fixtures.databases import open_migrated_store
from tests.store.lake.lakes import put_ended_run

LONG_AGO = 1_700_000_000.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a run that ended long ago."""
    with closing(open_migrated_store(tmp_path / "trmon.sqlite")) as store:
        put_ended_run(store, "one", now=LONG_AGO)
    return tmp_path


def run(*arguments: object, lake: Path | str | None = None) -> tuple[int, str]:
    """Run a command and return its exit status and output."""
    done = run_here(*arguments, **({} if lake is None else {"lake_url": str(lake)}))
    return done.exit_code, done.output


def test_what_waits_moves_and_is_shown(data: Path) -> None:
    lake = data / "lake"
    assert run("doctor", "--data-dir", data, lake=lake)[1].count("1 are due for more than a day") == 1
    assert "waiting:  1 attempts due, 0 ended" in run("lake", "status", "--data-dir", data, lake=lake)[1]
    status, moved = run("lake", "move", "--data-dir", data, lake=lake)
    assert status == 0
    assert "batch 1: 1 attempts, 3 reports, " in moved
    assert "10 rows deleted from the database" in moved
    shown = run("lake", "status", "--data-dir", data, lake=lake)[1]
    assert "moved:    1 attempts in 1 batches, " in shown
    assert "waiting:  0 attempts due" in shown
    assert f"ok    lake: {lake}, 1 attempts moved" in run("doctor", "--data-dir", data, lake=lake)[1]
    assert "fail  lake: 1 attempts are in a lake, and TRMON_LAKE_URL is not set" in run("doctor", "--data-dir", data)[1]


def test_a_lake_that_is_away_is_named_with_what_waits(data: Path) -> None:
    blocked = data / "blocked"
    blocked.mkdir()
    (blocked / "reports").mkdir()
    (blocked / "reports" / "_delta_log").write_text("no folder")
    status, said = run("doctor", "--data-dir", data, lake=blocked)
    assert status == 1
    assert f"fail  lake: the lake {blocked} failed" in said
    assert "1 attempts of ended runs wait" in said
