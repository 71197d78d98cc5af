"""A token policy put in force while a trainer trains: its weights reach the loss, its rates the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np

import trmon_client as trmon
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually

RUN = "/api/v1/runs/math/r"


def test_icepop_put_in_force_weighs_tokens_and_its_rates_are_signals(tmp_path: Path) -> None:
    service = ThreadedService(tmp_path / "data")
    try:
        with (
            service.client() as client,
            trmon.init(project="math", run="r", url=service.url, mode="enforce", spool_dir=tmp_path / "spool") as run,
        ):
            run.log_batch(**_batch(0), chunks=1)
            eventually(lambda: client.get(RUN).status_code == 200)
            assert client.put(f"{RUN}/policy", json={"policy": "icepop"}).status_code == 200
            decision, step = _until_taken_up(run)
            run.close(timeout=None)
        with service.client() as client:
            row = eventually(lambda: _row(client, step=step), lambda row: bool(row))
    finally:
        service.stop()
    assert decision.weights is not None
    kept = decision.weights[decision.weights > 0]
    assert 0.5 <= kept.min() < kept.max() <= 5.0
    assert 0 < len(kept) < decision.weights.size
    assert row["signals"]["token_mask_rate"] == 1 - len(kept) / decision.weights.size
    assert row["mismatches"] == 0


def _until_taken_up(run: trmon.Monitor) -> tuple[trmon.BatchDecision, int]:
    """Train until the policy that the service wants decides."""
    steps = iter(range(1, 1000))

    def train() -> tuple[trmon.BatchDecision, int]:
        step = next(steps)
        return run.log_batch(**_batch(step), chunks=1), step

    return eventually(train, lambda done: done[0].policy is not None and done[0].policy.name == "icepop")


def _row(client: httpx.Client, *, step: int) -> dict[str, Any]:
    answer = client.get(f"{RUN}/batches/{step}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


def _batch(step: int) -> dict[str, Any]:
    """Return log-probs of two engines that are far apart."""
    random = np.random.default_rng(step)
    rollout = -random.exponential(1.0, size=(8, 32))
    old = np.minimum(rollout + random.normal(0.0, 0.8, rollout.shape), -1e-6)
    return {"step": step, "rollout_logprobs": rollout, "old_logprobs": old, "mask": np.ones(rollout.shape, bool)}
