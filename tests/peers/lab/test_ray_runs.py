"""Backtests and what-ifs of a lake over a real Ray: the same numbers on any number of nodes, also if one is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from tests.fixtures.databases import open_migrated_store
from tests.store.lake.lakes import move_to_lake, put_ended_run
from trmon.cli.stored_runs import ray_cluster

pytestmark = pytest.mark.timeout(600)

N_RUNS = 24
OBJECT_STORE_BYTES = 80 << 20
POLICIES = ("--policy", "trm_avg(delta=0.0002,soft_tau=1)", "--policy", "trm_max(delta=0.02)")
BACKTEST = ("backtest", "{lake}", "--json", *POLICIES)
WHATIF = ("whatif", "--source", "{lake}", "--json", *POLICIES)
LONG = (*BACKTEST, *(part for delta in range(10, 50) for part in ("--policy", f"trm_max(delta=0.{delta})")))
"""It reads the reports of each run forty times more, so that it lasts after the first result."""
BOUND = '{{"name": "bound", "criteria": [{{"statistic": "max_binary_kl", "pair": "total", "upper": 0.02}}]}}'
OVER_A_BOUND = ("whatif", "--source", "{lake}", "--json", "--policy", BOUND)
PAGE = Path(__file__).parents[3] / "docs" / "queries.md"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of runs of three to seven steps."""
    folder = tmp_path_factory.mktemp("runs")
    store = open_migrated_store(folder / "trmon.sqlite")
    for i in range(N_RUNS):
        put_ended_run(store, f"run-{i:03}", steps=3 + i % 5)
    move_to_lake(store, str(folder / "lake"))
    store.close()
    return folder / "lake"


def _start(lake: Path, command: tuple[str, ...], *options: str) -> subprocess.Popen[str]:
    given = [part.format(lake=lake) for part in command]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "trmon", *given, *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def _printed(lake: Path, command: tuple[str, ...], *options: str) -> str:
    with _start(lake, command, *options) as process:
        printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0
    return printed


@pytest.fixture(scope="module")
def expected(lake: Path) -> dict[tuple[str, ...], str]:
    """What the commands print without Ray."""
    return {command: _printed(lake, command) for command in (BACKTEST, WHATIF, LONG, OVER_A_BOUND)}


@contextmanager
def _cluster(n_nodes: int) -> Iterator[tuple[Cluster, list[Any]]]:
    """A head that computes nothing and some nodes of one processor, each with a small object store."""
    memory = {"object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    try:
        yield cluster, [cluster.add_node(num_cpus=1, **memory) for _ in range(n_nodes)]
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("n_nodes", [1, 2, 4])
def test_any_number_of_nodes_gives_what_this_process_gives(
    lake: Path, expected: dict[tuple[str, ...], str], n_nodes: int
) -> None:
    with _cluster(n_nodes) as (cluster, _):
        for command in (BACKTEST, WHATIF):
            assert _printed(lake, command, "--address", cluster.address) == expected[command]
    lines = [json.loads(line) for line in expected[BACKTEST].splitlines()]
    assert [line["run"] for line in lines[:-1]] == [f"math/run-{i:03}" for i in range(N_RUNS)]
    assert lines[-1]["totals"]["policies"][0]["n_sequences"] == 8 * sum(3 + i % 5 for i in range(N_RUNS))
    assert 0 < json.loads(expected[WHATIF].splitlines()[1])["total"]["mask_rate"] < 1


def test_a_killed_node_changes_no_number(lake: Path, expected: dict[tuple[str, ...], str]) -> None:
    with _cluster(2) as (cluster, [doomed, _]):
        with _start(lake, LONG, "--address", cluster.address) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            cluster.remove_node(doomed, allow_graceful=False)
            printed = first + process.stdout.read()
        assert process.returncode == 0
        assert len(cluster.list_all_nodes()) == 2
    assert printed == expected[LONG]


def test_this_machine_alone_gives_the_same(lake: Path, expected: dict[tuple[str, ...], str]) -> None:
    assert _printed(lake, WHATIF, "--workers", "2") == expected[WHATIF]


def test_an_error_of_a_run_is_named(lake: Path, tmp_path: Path) -> None:
    broken = tmp_path / "lake"
    subprocess.run(["cp", "-r", str(lake), str(broken)], check=True)
    for file in (broken / "batches").rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    command = [sys.executable, "-W", "ignore", "-m", "trmon", "backtest", str(broken), "--workers", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert refused.returncode == 1
    assert "lake" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_recipe_of_the_page_masks_what_a_what_if_masks(
    lake: Path, expected: dict[tuple[str, ...], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [recipe] = re.findall(r"```python ray\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    monkeypatch.setenv("TRMON_LAKE_URL", str(lake))
    found: dict[str, Any] = {}
    with ray_cluster(address=None, workers=1):
        exec(compile(recipe, "recipe", "exec"), found)
    assert found["mask_rate"] == json.loads(expected[OVER_A_BOUND])["total"]["mask_rate"]
    assert 0 < found["mask_rate"] < 1
