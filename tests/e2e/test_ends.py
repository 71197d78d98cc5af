"""A trainer that crashes in a separate process, and what the service says of its run."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.command import run_python
from tests.fixtures.running_service import OwnRun
from tests.fixtures.waiting import eventually
from trmon.cli.show import fetch_run_detail
from trmon_client.api import Service

TRAINER = """
import numpy as np
import tests.client.patient_exit
import trmon_client as trmon

mu = np.full((2, 3), -1.0)
monitor = trmon.init()
for step in range(4):
    chunks = 2 if step == 3 else 1
    monitor.log_batch(step=step, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((2, 3)), chunks=chunks)
raise RuntimeError("out of memory")
"""
PHRASE = "RuntimeError: out of memory"


def test_a_crash_ends_its_run_pages_and_leaves_the_last_batch_incomplete(run: OwnRun, tmp_path: Path) -> None:
    url = str(run.client.base_url).rstrip("/")
    given = {"PROJECT": run.key.project, "RUN": run.key.run, "URL": url, "SPOOL_DIR": str(tmp_path / "spool")}
    ended = run_python(TRAINER, **{f"TRMON_{name}": value for name, value in given.items()})
    assert ended.returncode == 1, ended.stderr
    found = eventually(run.get, lambda found: found["state"] != "running")
    assert (found["state"], found["end_phrase"], found["end"]["phrase"]) == ("crashed", PHRASE, PHRASE)
    batches = eventually(lambda: run.get("/batches")["items"], lambda batches: len(batches) == 4)
    assert {batch["step"]: batch["complete"] for batch in batches} == {0: True, 1: True, 2: True, 3: False}
    [alert] = run.client.get("/api/v1/alerts", params={"project": run.key.project}).json()["items"]
    assert (alert["rule"], alert["summary"].endswith(PHRASE)) == ("crashed", True)
    with Service(url) as reader:
        assert fetch_run_detail(reader, run.key).run.end_phrase == PHRASE
