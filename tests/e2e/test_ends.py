"""Trainers that end in every way, in separate processes, and what the service says of their runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.cli.show import fetch_run_detail
from trmon.domain.identity import RunKey
from trmon_client.api import Service

RUN = RunKey("math", "grpo")
TRAINER = """
    import os, signal, sys, time
    import numpy as np
    import tests.client.patient_exit
    import trmon_client as trmon

    mu = np.full((2, 3), -1.0)
    monitor = trmon.init(project="math", run="grpo")

    def log(step, **given):
        monitor.log_batch(step=step, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((2, 3)), **given)

    for step in range(3):
        log(step)
"""

ENDS: dict[str, tuple[str, int, str, str]] = {
    "close": ("monitor.close()", 0, "finished", "closed"),
    "the end of the script": ("", 0, "finished", "ended, close() not called"),
    "sys.exit(0)": ("sys.exit(0)", 0, "finished", "ended, close() not called"),
    "sys.exit(3)": ("sys.exit(3)", 3, "crashed", "exit code 3"),
    "an exception": ("raise RuntimeError('loss is NaN')", 1, "crashed", "RuntimeError: loss is NaN"),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -2, "finished", "ended by SIGINT"),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15, "finished", "ended by SIGTERM"),
}


def start_trainer(service: ThreadedService, folder: Path, end: str) -> subprocess.Popen[str]:
    """Start a trainer that logs three steps and ends so."""
    environment = {**os.environ, "TRMON_URL": service.url, "TRMON_SPOOL_DIR": str(folder / "spool")}
    script = textwrap.dedent(TRAINER) + textwrap.dedent(end)
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_trainer(service: ThreadedService, folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    """Run a trainer that logs three steps and ends so."""
    with start_trainer(service, folder, end) as trainer:
        try:
            stdout, stderr = trainer.communicate(timeout=90)
        finally:
            trainer.kill()
    return subprocess.CompletedProcess(trainer.args, trainer.returncode, stdout, stderr)


def read_run(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get(f"/api/v1/runs/{RUN}").json())


@pytest.mark.parametrize(("end", "code", "state", "phrase"), ENDS.values(), ids=ENDS.keys())
def test_a_run_says_how_its_trainer_ended(
    service: ThreadedService, tmp_path: Path, end: str, code: int, state: str, phrase: str
) -> None:
    assert run_trainer(service, tmp_path, end).returncode == code
    with service.client() as client:
        run = eventually(lambda: read_run(client), lambda run: run["state"] != "running")
        alerts = client.get("/api/v1/alerts").json()["items"]
    assert (run["state"], run["end_phrase"], run["end"]["phrase"]) == (state, phrase, phrase)
    assert [alert["rule"] for alert in alerts] == (["crashed"] if state == "crashed" else [])
    assert all(alert["summary"].endswith(phrase) for alert in alerts)
    with Service(service.url) as reader:
        assert fetch_run_detail(reader, RUN).run.end_phrase == phrase


def test_a_kill_is_silence(service: ThreadedService, tmp_path: Path) -> None:
    with start_trainer(service, tmp_path, "time.sleep(600)") as trainer, service.client() as client:
        eventually(lambda: read_run(client), lambda run: run["last_step"] == 2)
        trainer.kill()
        trainer.communicate()
        run = read_run(client)
    assert (run["state"], run["end"], run["end_phrase"]) == ("running", None, None)


@pytest.mark.parametrize(("chunks", "known"), [("chunks=2", False), ("", None)])
def test_a_batch_that_a_crash_cuts_short_is_never_complete(
    service: ThreadedService, tmp_path: Path, chunks: str, known: bool | None
) -> None:
    run_trainer(service, tmp_path, f"log(3, {chunks})\nraise RuntimeError('out of memory')")
    with service.client() as client:
        path = f"/api/v1/runs/{RUN}/batches"
        batches = eventually(lambda: client.get(path).json()["items"], lambda found: len(found) == 4)
    complete = {batch["step"]: batch["complete"] for batch in batches}
    assert complete == {0: True, 1: True, 2: True, 3: known}
