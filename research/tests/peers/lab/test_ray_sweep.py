"""A sweep over a real Ray: each run once, also when workers and nodes are killed, and the same as without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from ray.cluster_utils import Cluster

from trmon.cli.stored_runs import ray_cluster
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.sweep.ray_execution import run_on_ray
from trmon_research.sweep.run_file import read_columns
from trmon_research.sweep.sweep_folder import SweepFolder
from trmon_research.sweep.swept_run import sweep_run

pytestmark = pytest.mark.timeout(600)

N_RUNS = 4
WORKER = "ray::sweep_run"


def _plan(n_updates: int = 60) -> list[ExperimentConfig]:
    return [
        ExperimentConfig(
            task="brackets",
            architecture="gru",
            mechanism="healthy",
            seed=seed,
            warm_start_exact=0.0,
            n_updates=n_updates,
            n_prompts=4,
            n_responses=4,
        )
        for seed in range(N_RUNS)
    ]


def _columns(folder: SweepFolder, config: ExperimentConfig) -> dict[str, np.ndarray]:
    return read_columns(folder.file_of(config.run_name))


def _assert_runs_are_those_of_this_process(folder: SweepFolder, plan: Sequence[ExperimentConfig]) -> None:
    for config in plan:
        target = folder.path / "direct.parquet"
        target.write_bytes(sweep_run(config).file)
        direct = read_columns(target)
        target.unlink()
        swept = _columns(folder, config)
        assert swept.keys() == direct.keys()
        for name, values in direct.items():
            np.testing.assert_array_equal(swept[name], values, err_msg=name)


def _workers() -> list[psutil.Process]:
    """Return the processes that are training a run of a Ray that this process started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] == [WORKER]:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _wait_until(is_so: Callable[[], bool], *, seconds: float = 100.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _kill_a_worker() -> threading.Thread:
    """Kill the first worker that trains a run."""

    def kill() -> None:
        _wait_until(lambda: bool(_workers()))
        _workers()[0].kill()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_the_run_of_a_killed_worker_is_run_again(tmp_path: Path) -> None:
    plan, folder, finished = _plan(), SweepFolder(tmp_path), Counter[str]()
    folder.extend(plan)
    with ray_cluster(address=None, workers=2) as ray:
        killing = _kill_a_worker()
        for run in run_on_ray(ray, plan, run=sweep_run):
            folder.store(run)
            finished[run.record.config.run_name] += 1
        killing.join()
    assert finished == Counter(config.run_name for config in plan)
    assert folder.missing(plan) == []
    _assert_runs_are_those_of_this_process(folder, plan[:2])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster of a head that trains nothing and two nodes that train one run each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


def test_the_runs_of_a_killed_node_are_run_on_others(cluster: Cluster, tmp_path: Path) -> None:
    doomed, _ = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    plan, folder, finished = _plan(n_updates=150), SweepFolder(tmp_path), Counter[str]()
    folder.extend(plan)

    def kill_a_node_while_both_train() -> None:
        _wait_until(lambda: len(_workers()) == 2)
        cluster.remove_node(doomed, allow_graceful=False)

    killing = threading.Thread(target=kill_a_node_while_both_train, daemon=True)
    with ray_cluster(address=cluster.address, workers=None) as ray:
        killing.start()
        for run in run_on_ray(ray, plan, run=sweep_run):
            folder.store(run)
            finished[run.record.config.run_name] += 1
        killing.join()
        _wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)
    assert finished == Counter(config.run_name for config in plan)
    _assert_runs_are_those_of_this_process(folder, plan)


def _sweep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trmon_research", "sweep", str(folder), "--workers", "1", "--updates", "20"]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    first = _sweep(tmp_path, "--runs", "3")
    _wait_until(lambda: bool(list(tmp_path.glob("*.parquet"))))
    os.kill(first.pid, signal.SIGTERM)
    first.communicate(timeout=60)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    assert 1 <= len(written) < 3

    printed, _ = _sweep(tmp_path, "--runs", "3").communicate(timeout=300)
    assert len(list(tmp_path.glob("*.parquet"))) == 3
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert all(line.outcome is not None for line in folder.lines())
    assert "3/3" in printed
