"""Runs with nothing to compare, through a real service: their batches close and are judged by rewards and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.trainer import batch, settings
from tests.fixtures.running_service import OwnRun
from tests.fixtures.waiting import eventually
from trmon_client.monitor import Monitor

N, STEPS = 8, 25
NAN = np.full((N, 6), np.nan)


Given = dict[str, str | None]
"""The log-probs that are passed, by the name of those of a batch; None: all NaN."""
PI_ALONE: Given = {"rollout_logprobs": None, "logprobs": "logprobs"}
PI_AND_MU: Given = {"rollout_logprobs": "rollout_logprobs", "logprobs": "logprobs"}
PI_AND_OLD: Given = {"rollout_logprobs": None, "old_logprobs": "rollout_logprobs", "logprobs": "logprobs"}


def trained(run: OwnRun, folder: Path, given: Given) -> list[dict[str, Any]]:
    """Log a run of STEPS steps, two chunks each, whose rewards are all 1; return its batches once all are closed."""
    url = str(run.client.base_url).rstrip("/")
    with Monitor(settings(folder, url=url, project=run.key.project)) as monitor:
        for step in range(STEPS):
            for _ in range(2):
                labels = {"rewards": np.ones(N), "group_ids": np.arange(N) // 4, "advantages": np.zeros(N)}
                made = batch(N, seed=step)
                taken = {name: NAN if source is None else made[source] for name, source in given.items()}
                scalars = {"loss": 1.0, "entropy": 0.5, "grad_norm": 0.3}
                monitor.log_batch(step=step, chunks=2, mask=np.ones((N, 6)), scalars=scalars, **labels, **taken)
    return eventually(lambda: run.get("/batches?limit=50")["items"], lambda batches: len(batches) == STEPS)


@pytest.mark.parametrize("given", [{}, PI_ALONE], ids=["no policy", "one policy beside NaN"])
def test_a_run_without_a_pair_is_stored_and_shown(given: Given, run: OwnRun, tmp_path: Path) -> None:
    for one in trained(run, tmp_path, given):
        assert (one["primary_pair"], one["mismatches"], one["quarantined"]) == (None, 0, [])
        assert (one["n_sequences"], one["n_tokens"], one["complete"]) == (2 * N, 12 * N, True)
        signals = one["signals"]
        assert (signals["reward_mean"], signals["response_length_median"], signals["mask_rate"]) == (1.0, 6.0, 0.0)
        assert not [name for name in signals if name.startswith(("mismatch_", "staleness_kl", "total_"))]
        assert one["scalars"]["entropy"] == 0.5
    for path in ("/batches/3/sequences", "/diagnosis", "/budget", "/distribution"):
        assert run.ask("GET", path).status_code == 200, path
    shown = run.get()["status"]
    assert (shown["kl"], set(shown["reward"]["values"])) == (None, {1.0})
    roles = [one["role"] for one in run.get("/batches/3/decisions")]
    assert roles == ["active"], "shadows that read a pair decide nothing"
    whatif = run.ask("POST", "/whatif", {"policy": "trm_max"})
    assert whatif.status_code == 200
    assert "needs two of the log-probs" in whatif.text
    sample = f'trmon_reward_mean{{project="{run.key.project}",run="grpo"}} 1.0'
    eventually(lambda: run.client.get("/metrics").text, lambda text: sample in text)
    query = {"state": "firing", "project": run.key.project}
    assert run.client.get("/api/v1/alerts", params=query).json()["items"] == []


@pytest.mark.parametrize(("given", "pair"), [(PI_AND_OLD, "staleness"), (PI_AND_MU, "total")])
def test_a_run_with_two_of_three_policies_is_judged_by_their_pair(
    given: Given, pair: str, run: OwnRun, tmp_path: Path
) -> None:
    for one in trained(run, tmp_path, given):
        assert (one["primary_pair"], one["signals"]["invalid_fraction"], one["mismatches"]) == (pair, 0.0, 0)
        assert one["signals"][f"{pair}_kl_k3"] < 1e-4
        assert "mismatch_kl_k3" not in one["signals"]
    found = run.get("/diagnosis")
    assert [one["signal"] for one in found["outside"]] == ["length_limit_share"], "the mask leaves out no token"
    assert ("agreement" in {one["what"] for one in found["unmeasured"]}) == (pair == "staleness")
