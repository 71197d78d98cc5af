"""The budget of a run over HTTP, from Python, and in the terminal."""

from __future__ import annotations

import math
from typing import Any

import httpx
import numpy as np
import pytest

from tests.fixtures.command import trmon
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, finish, send, train
from trmon.cli.budget import budget_lines
from trmon_client.api import NotFoundError, Service
from trmon_client.core import divergence, statistics, wire
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences

PATH = "/api/v1/runs/math/grpo/budget"
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
        old_version=version + 4,
    )
    return with_divergences(columns, divergence.exact(rollout_logits=a, logits=b, mask=mask, tv=True))


def run_with_logits(client: httpx.Client, *, steps: int = 6) -> None:
    send(client, MATH, wire.Start(**ORIGIN, config=CONFIG))
    for step in range(steps):
        finished = [wire.ChunkCount(step - 1, None, 1)] if step else []
        content = of_logits(version=step)
        made = wire.Report(
            **ORIGIN,
            step=step,
            parcel=wire.pack_columns(content),
            kl_is=content.kl_is,
            kl_pair=content.kl_pair,
            trainer_version=content.trainer_version,
            old_version=content.old_version,
            finished=finished,
            scalars={"lr": 1e-3, "grad_variance": 1.0},
        )
        send(client, MATH, made)
    finish(client, MATH, steps=range(steps))


def test_a_budget_has_every_part(client: httpx.Client) -> None:
    run_with_logits(client)
    found = client.get(PATH).json()
    assert (found["step"], found["steps"]) == (5, 6)
    states = {item["name"]: item["state"] for item in found["mismatch"]}
    assert states == {
        "95th percentile of token TV": "exceeded",
        "chi-squared of sequences": "within",
        "router flips": "not_measured",
    }
    law = found["lag"]
    assert (law["lag"], law["horizon"], law["lr"]) == (4, 50, 1e-3)
    assert law["lr_scale"] == pytest.approx(min(0.01 / (4 * 2), 0.4 / (50 * 2)))
    assert found["lag_words"][0] == (
        "A lag of 4 allows learning rates well below 0.00125 (conjecture); this run has 0.001."
    )
    tv = of_logits(version=0)["max_tv"].max()
    assert found["split"]["exact_max"] == pytest.approx(tv, rel=1e-5)
    assert 0 < found["split"]["alpha_1"] <= found["split"]["exact_max"]
    assert (found["split"]["alpha_0"], found["split"]["mismatch_share"]) == (0, 1)
    assert {kind["name"]: kind["presence"] for kind in found["kinds"]} == {
        "engine mismatch": "unknown",
        "staleness": "present",
        "reuse of rollouts": "absent",
        "versions within a response": "absent",
        "missing old log-probs": "absent",
        "router decisions": "unknown",
        "quantised rollout": "unknown",
        "sampling mask": "unknown",
        "KV cache of older weights": "unknown",
        "speculative drafting": "unknown",
    }
    assert math.isfinite(found["minorizer"])
    assert found["minorizer_vacuous"] in (0, 1)
    assert [method["kind"] for method in found["pipeline"]["methods"]] == ["async"]
    assert found["pipeline"]["anti_patterns"][1]["shown_by"][0] == {
        "name": "vllm_importance_sampling_mode",
        "value": "sequence_truncate",
    }


def test_a_budget_without_logits_names_what_is_missing(client: httpx.Client) -> None:
    train(client, MATH)
    found = client.get(PATH).json()
    assert (found["minorizer"], found["split"]["exact_max"], found["lag"]["lr_scale"]) == (None, None, None)
    assert found["mismatch"][0]["note"] == "needs the logits of both engines, and tv=True"


def test_a_run_without_a_batch_has_no_budget(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    assert client.get(PATH).status_code == 404


def test_the_budget_in_python_and_in_the_terminal(service: ThreadedService, client: httpx.Client) -> None:
    run_with_logits(client)
    with Service(service.url) as reader:
        found = reader.budget("math/grpo")
        with pytest.raises(NotFoundError):
            reader.budget("math/none")
    assert found.lag.lr_scale == pytest.approx(0.00125)
    lines = list(budget_lines(found))
    assert "  within        chi-squared of sequences < 0.1: " in "\n".join(lines)
    assert "  ! staleness: the weights moved between rollout and training (version_lag_max 4)" in lines
    printed = trmon("budget", "math/grpo", "--url", service.url)
    assert [line.rstrip() for line in printed.stdout.splitlines()] == [line.rstrip() for line in lines]
    assert (
        client.get(PATH).json()
        == httpx.Response(200, content=trmon("budget", "math/grpo", "--json", "--url", service.url).stdout).json()
    )
