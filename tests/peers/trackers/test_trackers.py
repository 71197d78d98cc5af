"""wandb and trackio, as frameworks call them: what they log arrives, and they keep it too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.waiting import eventually
from tests.peers.conftest import run_program

BEGIN = """
import sys
from trmon_client.integrations.trackers import follow
follow()
assert not {"wandb", "trackio"} & {*sys.modules}
"""
OPEN_INSTRUCT = """
import wandb
wandb.init(project="math grpo", name="tiny", config={"beta": 0.1}, group="g", tags=["grpo"], save_code=False)
wandb.define_metric("training_step")
wandb.define_metric("*", step_metric="training_step")
for step in range(1, 31):
    values = {"training_step": step, "scores": step / 100, "val/stop_rate": 1.0, "val/advantages": wandb.Histogram([1])}
    wandb.log(values, step=step)
wandb.finish()
"""
ROLL = """
import wandb
run = wandb.init(project="math grpo", tags=None, name="tiny", mode="offline", settings={"console": "off"})
run.config.update({"beta": 0.1}, allow_val_change=True)
for step in range(1, 31):
    run.log({"critic/score/mean": step / 100, "system/step": step}, step=step)
run.finish()
"""
TRACKIO = """
import trackio
trackio.init(project="math grpo", name="tiny", config={"beta": 0.1})
for step in range(30):
    trackio.log({"reward": (step + 1) / 100})
trackio.finish()
"""
CRASH = """
import wandb
wandb.init(project="math grpo", name="tiny", config={"beta": 0.1})
for step in range(1, 31):
    wandb.log({"critic/score/mean": step / 100}, step=step)
raise RuntimeError("out of memory")
"""

pytestmark = pytest.mark.timeout(300)


def train(folder: Path, service: httpx.Client, code: str) -> dict[str, Any]:
    """Run a program that logs 30 steps to a tracker of which trmon is told, and return the run that the service has."""
    run_program(BEGIN + code, folder, service, TRACKIO_DIR=str(folder / "trackio"), HF_HUB_OFFLINE="1")
    run: dict[str, Any] = eventually(
        lambda: service.get("/api/v1/runs/math-grpo/tiny").json(),
        lambda run: run.get("state") in ("finished", "crashed"),
    )
    return run


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(OPEN_INSTRUCT, id="wandb, as open-instruct e6c3044a calls it"),
        pytest.param(ROLL, id="wandb, as ROLL 8eb27cc2 calls it"),
        pytest.param(TRACKIO, id="trackio"),
    ],
)
def test_what_a_framework_logs_is_judged_and_the_tracker_keeps_it(
    tmp_path: Path, service: httpx.Client, code: str
) -> None:
    run = train(tmp_path, service, code)
    assert (run["state"], run["end_phrase"], run["warnings"]) == ("finished", "closed", [])
    assert run["config"]["beta"] == 0.1
    assert run["config"]["framework"].startswith(("wandb 0.", "trackio 0."))
    assert not [name for name in run["config"] if name.startswith("_")]
    batches = service.get("/api/v1/runs/math-grpo/tiny/batches", params={"limit": 500}).json()["items"]
    assert [batch["signals"]["reward_mean"] for batch in reversed(batches)] == pytest.approx(
        [step / 100 for step in range(1, 31)]
    )
    assert [*tmp_path.glob("wandb/offline-run-*/*.wandb"), *tmp_path.glob("trackio/*.db")]


def test_a_run_that_crashes_has_crashed(tmp_path: Path, service: httpx.Client) -> None:
    run = train(tmp_path, service, CRASH)
    assert (run["state"], run["end"]["error"]) == ("crashed", "RuntimeError: out of memory")
