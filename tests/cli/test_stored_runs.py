"""`trmon backtest` and `trmon whatif` over a lake give what they give over an archive of the same runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command import trmon
from tests.fixtures.moved_runs import MovedRuns, make_moved_runs

LOCKED_AT_EXIT = """
import atexit, ctypes, sys
atexit.register(ctypes.PyDLL(None).usleep, 50_000)
from trmon.store.lake.runs import lake_runs
assert lake_runs(sys.argv[1])
"""
STRICT = "trm_max(delta=0.02)"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> MovedRuns:
    """Two runs in a lake, and an archive of them."""
    return make_moved_runs(tmp_path_factory.mktemp("moved"))


def lines(*command: object) -> list[dict[str, Any]]:
    """Return the JSON lines that a command prints."""
    shown = trmon(*command, "--json")
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_a_backtest_of_a_lake_is_that_of_an_archive(moved: MovedRuns) -> None:
    of_lake, of_archive = (lines("backtest", source, "--policy", STRICT) for source in (moved.lake, moved.archive))
    assert of_lake[-1] == of_archive[-1]
    assert {line["run"]: line for line in of_lake[:-1]} == {line["run"]: line for line in of_archive[:-1]}
    assert {line["run"] for line in of_lake[:-1]} == {"math/stale", "math/healthy"}
    assert of_lake[-1]["totals"]["policies"][0]["n_sequences"] == 60 * 96


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param([], id="the whole of one run"),
        pytest.param(["--from", 10, "--to", 20, "--max-steps", 6], id="the newest of some steps"),
    ],
)
def test_a_what_if_over_a_lake_is_that_over_an_archive(moved: MovedRuns, chosen: list[object]) -> None:
    asked = ("whatif", "math/stale", "--policy", STRICT, "--policy", "geo_mask", *chosen)
    of_lake, of_archive = (lines(*asked, "--source", source) for source in (moved.lake, moved.archive))
    assert of_lake == of_archive
    covered = of_lake[0]["range"]
    assert (covered["first_step"], covered["last_step"]) == ((15, 20) if chosen else (0, 39))
    assert of_lake[0]["total"]["n_sequences"] == 96 * covered["n_steps"]
    assert 0 < of_lake[0]["total"]["mask_rate"] < 1


def test_no_thread_that_read_a_lake_aborts_the_process_at_its_end(moved: MovedRuns) -> None:
    """A thread of pyarrow that releases a Python object must not wait for the interpreter's lock while that ends."""
    ended = [subprocess.Popen([sys.executable, "-c", LOCKED_AT_EXIT, str(moved.lake)]) for _ in range(8)]
    assert [process.wait(timeout=100) for process in ended] == [0] * 8


def test_all_runs_add_up(moved: MovedRuns) -> None:
    [one, other] = (
        lines("whatif", f"math/{run}", "--source", moved.lake, "--policy", STRICT)[0] for run in ("stale", "healthy")
    )
    [both] = lines("whatif", "--source", moved.lake, "--policy", STRICT)
    assert both["total"]["n_sequences"] == one["total"]["n_sequences"] + other["total"]["n_sequences"]
    assert both["reasons"]["max_binary_kl"] == sum(each["reasons"].get("max_binary_kl", 0) for each in (one, other))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(("whatif", "--policy", STRICT), "PROJECT/RUN: is needed without --source", id="no run"),
        pytest.param(
            ("whatif", "math/stale", "--policy", STRICT, "--workers", 2), "--source: is needed", id="no source for Ray"
        ),
        pytest.param(("whatif", "--source", "{tmp}", "--policy", STRICT), "is neither a lake nor", id="no lake"),
        pytest.param(
            ("whatif", "math/none", "--source", "{lake}", "--policy", STRICT), "which has 2 runs", id="no run"
        ),
        pytest.param(
            ("backtest", "{lake}", "--workers", 1, "--address", "127.0.0.1:1"), "both given", id="two kinds of Ray"
        ),
        pytest.param(("backtest", "http://127.0.0.1:1", "--workers", 1), "lakes and folders", id="a service over Ray"),
        pytest.param(("backtest", "ftp://there"), "give a folder or one of s3://", id="another scheme"),
    ],
)
def test_what_cannot_be_read_is_named(moved: MovedRuns, tmp_path: Path, command: tuple[object, ...], said: str) -> None:
    given = [str(each).format(tmp=tmp_path, lake=moved.lake) if "{" in str(each) else each for each in command]
    shown = trmon(*given)
    assert shown.returncode == 1
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr
