"""A run by its scalars under a fleet, from the real client; the goldens of `math/scalars` are those of one service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.trainer import settings
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon_client.monitor import Monitor

PATH = "/api/v1/runs/math/grpo"
STEPS = 30
GRADIENT_SPIKE_AT = 25


@pytest.mark.server("postgres")
def test_a_run_by_its_scalars_has_rows_alerts_and_metrics(postgres_url: str, tmp_path: Path) -> None:
    service = ThreadedService(tmp_path / "unused", database_url=postgres_url)
    with WorkerProcess(postgres_url, log=tmp_path / "worker.log"), service.client() as client:
        with Monitor(settings(tmp_path / "trainer", url=service.url)) as monitor:
            for step in range(STEPS):
                gradient = 90.0 if step == GRADIENT_SPIKE_AT else 1.0
                monitor.log_scalars(step, {"reward": 0.5, "entropy": 0.7, "length": 100.0, "grad_norm": gradient})
        eventually(lambda: client.get(PATH).json().get("state"), lambda state: state == "finished")
        path = f"{PATH}/batches?limit=50"
        batches = eventually(lambda: client.get(path).json()["items"], lambda found: len(found) == STEPS)
        assert [batch["step"] for batch in reversed(batches)] == list(range(STEPS))
        assert {(batch["n_sequences"], batch["complete"], batch["signals"]["reward_mean"]) for batch in batches} == {
            (0, True, 0.5)
        }
        assert "gradient_spike" in {alert["rule"] for alert in client.get("/api/v1/alerts").json()["items"]}
        sample = 'trmon_reward_mean{project="math",run="grpo"} 0.5'
        eventually(lambda: client.get("/metrics").text, lambda text: sample in text)
    service.stop()
