"""The budget of a run over HTTP, of the signals that only it reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import OwnRun
from tests.fixtures.trainer import finish
from trmon_client.core import divergence, statistics, wire
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences

CONFIG: dict[str, Any] = {
    "lr": 1e-3,
    "max_steps": 50,
    "advantages_centred": True,
    "lag_law": {"r_batch": 0.01, "r_crit": 0.4, "update_norm": 2},
    "vllm_importance_sampling_mode": "sequence_truncate",
}


def of_logits(*, version: int) -> Columns:
    """Return a batch of an old engine with the logits of both sides: the TVs and the KL are exact."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 6, 8))
    b = a + 0.01 * rng.normal(size=a.shape)
    tokens, mask = rng.integers(0, 8, (4, 6, 1)), np.ones((4, 6), bool)
    mu, pi = (np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), tokens, -1)[..., 0] for x in (a, b))
    columns = statistics.columns(
        rollout_logprobs=mu,
        old_logprobs=pi,
        logprobs=pi,
        mask=mask,
        advantages=[0.5, -0.5, 0.25, -0.25],
        versions=[version] * 4,
        trainer_version=version + 4,
        old_version=version,
    )
    return with_divergences(columns, divergence.exact(rollout_logits=a, logits=b, mask=mask, tv=True))


def test_the_logits_of_both_engines_reach_the_budget(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config=CONFIG))
    for step in range(6):
        content = of_logits(version=step)
        made = wire.Report(
            **ORIGIN,
            step=step,
            parcel=wire.pack_columns(content),
            kl_is=content.kl_is,
            kl_pair=content.kl_pair,
            trainer_version=content.trainer_version,
            old_version=content.old_version,
            finished=[wire.ChunkCount(step - 1, None, 1)] if step else [],
            scalars={"lr": 1e-3, "grad_variance": 1.0},
        )
        run.send(made)
    finish(run.client, run.key, steps=range(6))
    found = run.get("/budget")
    assert (found["step"], found["steps"]) == (5, 6)
    assert [item["state"] for item in found["mismatch"]] == ["exceeded", "within", "not_measured"]
    assert (found["lag"]["lag"], found["lag"]["horizon"], found["lag"]["lr"]) == (4, 50, 1e-3)
    assert found["lag"]["lr_scale"] == pytest.approx(min(0.01 / (4 * 2), 0.4 / (50 * 2)))
    assert found["split"]["exact_max"] == pytest.approx(of_logits(version=0)["max_tv"].max(), rel=1e-5)
    assert 0 < found["split"]["alpha_1"] <= found["split"]["exact_max"]
    assert math.isfinite(found["minorizer"])
    assert [method["kind"] for method in found["pipeline"]["methods"]] == ["async"]
    assert found["pipeline"]["anti_patterns"][1]["shown_by"][0] == {
        "name": "vllm_importance_sampling_mode",
        "value": "sequence_truncate",
    }
