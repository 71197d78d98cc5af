"""The identity of a process: launchers, process groups, forks, and ids that ranks agree on."""

from __future__ import annotations

import importlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh

from tests.client.trainer import batch, settings, spooled, steps
from trmon_client.config.settings import attempt_id, launch_id
from trmon_client.core import wire
from trmon_client.monitor import Monitor
from trmon_client.process.identity import Identity, Ranks, discover_ranks, launch_facts, resolve_identity

Join: TypeAlias = Callable[[int, int], distributed.Store]

TORCHRUN = {"TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "2", "MASTER_PORT": "2950"}
LAUNCHERS = {
    "torchrun with an id": (TORCHRUN, "torchrun-job7-2", "torchrun-job7-2-2950"),
    "torchrun without one": ({"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "2950"}, None, None),
    "slurm": ({"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "1"}, "slurm-41-0", "slurm-41-0-1"),
    "slurm after a requeue": ({"SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": "3"}, "slurm-41-3", "slurm-41-3"),
    "torchrun under slurm": ({**TORCHRUN, "SLURM_JOB_ID": "41"}, "torchrun-job7-2", "torchrun-job7-2-2950"),
    "ray, whose job outlives its workers": ({"RAY_JOB_ID": "01000000"}, "ray-01000000", None),
    "none": ({}, None, None),
}


@pytest.mark.parametrize(("variables", "attempt", "launch"), LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_a_launcher_names_attempt_and_launch(
    variables: dict[str, str], attempt: str | None, launch: str | None
) -> None:
    assert (attempt_id(variables), launch_id(variables)) == (attempt, launch)


@pytest.mark.parametrize("end", ["x" * 500, ""], ids=["and long", "and short"])
def test_a_launcher_id_that_cannot_be_encoded_is_replaced_and_stays_distinct(end: str) -> None:
    names = [
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": f"job{unprintable}{end}"} for unprintable in ("\udcff", "\udcfe", "\n")
    ]
    for name in (attempt_id, launch_id):
        found = {str(name(variables)).encode() for variables in names}
        assert len(found) == 3
        assert all(len(one) <= 128 for one in found)


def settled(
    tmp_path: Path, *, is_fork: bool = False, ranks: Ranks | None = None, n_before: int = 0, **given: Any
) -> Identity:
    chosen = settings(tmp_path, **given)
    found, never = ranks or discover_ranks(chosen), threading.Event()
    return resolve_identity(chosen, found, is_fork=is_fork, give_up=never, n_before=n_before)


def test_without_a_launcher_and_a_group_the_attempt_is_local_and_marked_so(tmp_path: Path) -> None:
    first, second = settled(tmp_path), settled(tmp_path)
    assert first.is_attempt_local
    assert first.attempt != second.attempt
    named = settled(tmp_path, environment={**TORCHRUN, "TRMON_ATTEMPT": "third"})
    assert (named.attempt, named.launch, named.is_attempt_local) == ("third", "torchrun-job7-2-2950", False)


def test_a_fork_keeps_the_attempt_and_gets_its_own_launch(tmp_path: Path) -> None:
    parent = settled(tmp_path, environment=TORCHRUN)
    child = settled(tmp_path, environment=TORCHRUN, is_fork=True)
    assert child.attempt == parent.attempt
    assert child.launch != parent.launch


@pytest.mark.parametrize("environment", [TORCHRUN, {"SLURM_JOB_ID": "41"}, {}], ids=["torchrun", "slurm", "nobody"])
def test_a_second_monitor_repeats_steps_under_its_own_launch(tmp_path: Path, environment: dict[str, str]) -> None:
    for seed in (0, 1):
        monitor = Monitor(settings(tmp_path, environment=environment, run=f"again-{len(environment)}"))
        monitor.log_batch(step=0, **batch(seed=seed))
        monitor.close()
    reports = [message for message in spooled(tmp_path) if isinstance(message, wire.Report)]
    assert len({(report.launch, report.step, report.chunk) for report in reports}) == len(reports) == 2


def test_ranks_that_all_restart_share_the_new_launch(tmp_path: Path) -> None:
    again = [settled(tmp_path, environment=TORCHRUN, ranks=Ranks(rank, 2), n_before=1) for rank in (0, 1)]
    assert {identity.launch for identity in again} == {"torchrun-job7-2-2950-2"}


@pytest.fixture
def join() -> Iterator[Join]:
    """Makes this process one rank of a process group whose other ranks are not there; returns the group's store."""

    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend "fake"

    def make(rank: int, world_size: int) -> distributed.Store:
        distributed.init_process_group("fake", store=distributed.HashStore(), rank=rank, world_size=world_size)
        return distributed.distributed_c10d._get_default_store()

    yield make
    distributed.destroy_process_group()


def test_rank_zero_writes_its_start_id_to_the_store(tmp_path: Path, join: Join) -> None:
    store = join(0, 2)
    identity = settled(tmp_path)
    assert not identity.is_attempt_local
    assert store.get("trmon/start/math/grpo/0").decode() == identity.attempt == identity.launch


def test_another_rank_reads_the_start_id(tmp_path: Path, join: Join) -> None:
    join(1, 2).set("trmon/start/math/grpo/0", "started-by-rank-0")
    identity = settled(tmp_path, environment={"SLURM_JOB_ID": "41"})
    assert (identity.attempt, identity.launch) == ("slurm-41-0", "started-by-rank-0")
    assert settled(tmp_path).attempt == "started-by-rank-0"


def test_workers_that_torchrun_restarts_ignore_the_id_that_the_store_kept(tmp_path: Path, join: Join) -> None:
    join(0, 2)
    unnamed = {"TORCHELASTIC_RUN_ID": "none"}
    first, again = (
        settled(tmp_path, environment={**unnamed, "TORCHELASTIC_RESTART_COUNT": restarts}) for restarts in ("0", "1")
    )
    assert first.attempt != again.attempt
    assert first.launch != again.launch


def test_without_an_id_from_rank_zero_the_attempt_is_local(tmp_path: Path, join: Join) -> None:
    join(1, 2)
    assert settled(tmp_path, limits={"store_timeout_seconds": 0.02}).is_attempt_local


def test_closing_ends_the_wait_for_rank_zero(tmp_path: Path, join: Join) -> None:
    join(1, 2)
    closing = threading.Event()
    closing.set()
    chosen = settings(tmp_path, limits={"store_timeout_seconds": 3600.0})
    assert resolve_identity(chosen, discover_ranks(chosen), is_fork=False, give_up=closing).is_attempt_local


def test_messages_beyond_the_queue_are_counted_meanwhile_and_the_finish_is_sent(tmp_path: Path, join: Join) -> None:
    join(1, 2)
    monitor = Monitor(settings(tmp_path, limits={"store_timeout_seconds": 3600.0, "queue_reports": 4}))
    for step in range(10):
        monitor.log_batch(step=step, **batch())
    monitor.close()
    finish = spooled(tmp_path)[-1]
    assert steps(spooled(tmp_path)) == [0, 1, 2]
    assert finish.losses.dropped == {"queue_full": 7}
    assert [count.step for count in finish.finished] == list(range(2, 10))


RANKS = {
    "passed": ({"rank": 3, "world_size": 8}, {"RANK": "0", "WORLD_SIZE": "64"}, Ranks(3, 8)),
    "a process alone": ({}, {}, Ranks(0, 1)),
    "the launcher's before the group exists": ({}, {"RANK": "2", "WORLD_SIZE": "4"}, Ranks(2, 4, is_unverified=True)),
    "a launcher that makes no sense": ({}, {"RANK": "x", "WORLD_SIZE": "4"}, Ranks(0, 1)),
}


@pytest.mark.parametrize(("given", "environment", "ranks"), RANKS.values(), ids=RANKS.keys())
def test_ranks_are_passed_or_discovered(
    tmp_path: Path, given: dict[str, int], environment: dict[str, str], ranks: Ranks
) -> None:
    assert discover_ranks(settings(tmp_path, environment=environment, **given)) == ranks


def test_a_plain_process_group_is_data_parallel(tmp_path: Path, join: Join) -> None:
    join(1, 4)
    assert discover_ranks(settings(tmp_path, environment={"RANK": "2", "WORLD_SIZE": "8"})) == Ranks(1, 4)


def test_a_mesh_of_two_dimensions_leaves_ranks_unverified_unless_passed(tmp_path: Path, join: Join) -> None:
    join(1, 4)
    init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert discover_ranks(settings(tmp_path)) == Ranks(1, 4, is_unverified=True)
    assert discover_ranks(settings(tmp_path, rank=0, world_size=2)) == Ranks(0, 2)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_scripts_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "code"
    checkout.mkdir()
    git(checkout, "init", "-q")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "first")
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "worktree", "add", "-q", str(tmp_path / "other"))

    def found(folder: Path) -> str | None:
        monkeypatch.setattr("sys.argv", [str(folder / "scripts" / "train.py"), "--lr", "1e-6"])
        assert launch_facts()["command"] == "train.py --lr 1e-6"
        return launch_facts().get("git_commit")

    assert [found(checkout), found(tmp_path / "other"), found(tmp_path)] == [commit, commit, None]
    git(checkout, "pack-refs", "--all")
    assert [found(checkout), found(tmp_path / "other")] == [commit, commit]
    git(checkout, "checkout", "-q", "--detach")
    assert found(checkout) == commit
    (checkout / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert found(checkout) is None
