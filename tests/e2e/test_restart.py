"""A run goes on: after torchrun has started its killed rank again, and moved from the embedded service to a fleet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.client.trainer import spooled
from tests.fixtures.command import run_here
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, statuses, step_report, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

N_STEPS = 10
SEQUENCES_A_STEP = 24
RESUMED_AT = 4
RUN = "/api/v1/runs/math/grpo"
TRAINER = """
import os, signal, sys, time
from pathlib import Path

import httpx
import numpy as np
from torch import distributed

import trmon_client as trmon

rank, is_first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
distributed.init_process_group("gloo")
checkpoint = Path(sys.argv[1])
monitor = trmon.init(project="math", run="grpo")
for step in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, 10):
    for micro_batch in range(3):
        mu = np.random.default_rng([step, rank, micro_batch, is_first]).normal(-1.0, 0.1, (4, 6))
        monitor.log_batch(step=step, chunks=3, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((4, 6)))
        if is_first and (rank, step, micro_batch) == (1, 5, 1):
            os.kill(os.getpid(), signal.SIGKILL)
    distributed.barrier()
    if rank == 0 and step % 2:
        # What a rank that is killed still has in its memory is gone: here it is killed long after it has sent this.
        while step not in {batch["step"] for batch in httpx.get(sys.argv[2]).json().get("items", ())}:
            time.sleep(0.02)
        checkpoint.write_text(str(step + 1))
    distributed.barrier()
monitor.close(timeout=None)
distributed.destroy_process_group()
"""


def test_a_run_whose_rank_was_killed_is_whole_after_torchrun_has_started_it_anew(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    service = ThreadedService(tmp_path / "data", grace_seconds=5.0)
    # With the store that torchrun keeps otherwise, gloo finds the addresses of the dead.
    environment = {"TRMON_URL": service.url, "TRMON_SPOOL_DIR": str(tmp_path / "spool")}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", *torchrun, str(script), str(tmp_path / "checkpoint"), f"{service.url}{RUN}/batches"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with service.client() as client:
            eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
            attempts = [attempt["id"] for attempt in client.get(f"{RUN}/attempts").json()["items"]]
            batches = client.get(f"{RUN}/batches", params={"limit": 500}).json()["items"]
    finally:
        service.stop()

    whole = [batch for batch in batches if batch["complete"] and batch["n_sequences"] == SEQUENCES_A_STEP]
    assert {batch["step"] for batch in whole} == set(range(N_STEPS))
    assert len(attempts) == 2
    again = [batch["step"] for batch in whole if batch["attempt_id"] == max(attempts)]
    assert sorted(again) == list(range(RESUMED_AT, N_STEPS))
    assert "stands under the same identity" not in done.stderr
    assert spooled(tmp_path) == []


def closed(client: httpx.Client) -> list[int]:
    """Return the steps of the closed batches, oldest first."""
    return [batch["step"] for batch in reversed(client.get(f"{RUN}/batches").json()["items"])]


@pytest.mark.server("postgres")
def test_a_live_run_goes_on_where_it_was(tmp_path: Path, postgres_url: str) -> None:
    embedded = ThreadedService(tmp_path / "data")
    with embedded.client() as client:
        train(client, steps=range(10), end=False)
        eventually(lambda: closed(client), lambda steps: steps == list(range(9)))
        before = client.get(f"{RUN}/signals", params={"names": "total_kl_k3", "to": 8}).json()["signals"]
    embedded.stop()

    archive = tmp_path / "archive"
    for moved in (
        run_here("export", "math", archive, "--data-dir", tmp_path / "data"),
        run_here("import", archive, database_url=postgres_url),
    ):
        assert moved.exit_code == 0, moved.stderr

    authenticator = ThreadedService(tmp_path / "unused", database_url=postgres_url)
    with authenticator.client() as client, WorkerProcess(postgres_url, log=tmp_path / "worker.log"):
        # The trainer sends again what it is not sure of, and continues.
        assert statuses(client, MATH, step_report(9)) == ["duplicate"]
        for step in range(10, 15):
            send_step(client, MATH, step=step)
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(14, None, 1)]))
        eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
        eventually(lambda: closed(client), lambda steps: steps == list(range(15)))
        after = client.get(f"{RUN}/signals", params={"names": "total_kl_k3", "to": 8}).json()["signals"]
    authenticator.stop()
    assert after == before
