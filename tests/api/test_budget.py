"""The budget of a run over HTTP, and the advice to its trainer, also with acknowledgements."""

from __future__ import annotations

import math
from typing import Any

import httpx
import numpy as np
import pytest

from tests.domain.trainer import finished
from tests.domain.trainer import report as healthy_report
from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun
from tests.fixtures.trainer import MATH, finish, send, send_step
from tests.fixtures.waiting import eventually
from tests.worker.watched_run import ORIGIN as WATCHED_ORIGIN
from tests.worker.watched_run import WatchedRun
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


BUDGET = "/api/v1/runs/math/grpo/budget"


def batch(step: int, *, drift: float) -> Columns:
    """Return 64 sequences whose log weights have a deviation of `drift`."""
    random = np.random.default_rng(step)
    return columns(64, total_sum_d=random.normal(0.0, drift, 64))


def advice_of(client: httpx.Client) -> dict[str, Any]:
    """Return the advice beside the budget, empty where there is none."""
    return client.get(BUDGET).json().get("advice") or {}


def acked(client: httpx.Client, *, step: int, **origin: str) -> dict[str, Any] | None:
    body = wire.encode(report(step=step, **origin))
    answer = client.post("/api/v1/runs/math/grpo/reports", content=body, headers={"Content-Type": wire.MSGPACK})
    return wire.decode_ack(answer.content).advice


def test_a_drifting_run_is_advised_to_lower_its_learning_rate_and_its_next_attempt_is_not(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN, config={"kl_target": 6.0}))
    for step in range(30):
        send_step(client, MATH, step=step, content=batch(step, drift=0.1 if step < 24 else 1.5))
        if step == 23:
            # What the run was like at its start is known once its first rows are written.
            eventually(lambda: advice_of(client), lambda advice: advice.get("step") == 22)
    advice = eventually(lambda: advice_of(client), lambda advice: advice.get("step") == 28)
    assert 0 < advice["lr_scale_sgd"] < advice["lr_scale"] < 0.8
    assert advice["lr_scale_sgd"] == pytest.approx(advice["lr_scale"] ** 2)
    assert "ess_seq" in advice["reasons"]["lr_scale"]
    assert (advice["lr_decay"], advice["kl_factor"]) == (None, None)
    heard = acked(client, step=40)
    assert heard is not None
    assert (heard["lr_scale"], heard["reasons"].keys()) == (advice["lr_scale"], advice["reasons"].keys())
    assert acked(client, step=0, attempt="second", launch="launch-2") is None


def test_there_is_no_advice_before_the_first_step(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    assert client.get(BUDGET).status_code == 404
    assert acked(client, step=0) is None


def test_the_penalty_follows_the_trainers_own_kl(client: httpx.Client) -> None:
    send(client, MATH, wire.Start(**ORIGIN, config={"kl_target": 6.0, "kl_horizon": 100}))
    counts = [wire.ChunkCount(0, None, 1)]
    send(client, MATH, report(step=0, scalars={"ref_kl": 60.0}), report(step=1, finished=counts))
    advice = eventually(lambda: advice_of(client), lambda advice: advice.get("step") == 0)
    assert advice["kl_factor"] == 1 + 0.2 * 4 / 100


def teach(watched: WatchedRun, steps: range, **fields: Any) -> None:
    for step in steps:
        counts = finished((step - 1, None, 1)) if step else []
        watched.receive(healthy_report(step, finished=counts, **fields), at=10.0 * step)


@pytest.mark.parametrize(
    ("config", "health", "stops"),
    [
        pytest.param({"stop_on_collapse": True}, {"scalars": {"grad_norm": math.nan}}, True, id="NaN, opted in"),
        pytest.param({}, {"scalars": {"grad_norm": math.nan}}, False, id="NaN, not opted in"),
        pytest.param({"stop_on_collapse": "yes"}, {"scalars": {"grad_norm": math.nan}}, False, id="not a truth value"),
        pytest.param({"stop_on_collapse": True}, {"health": "corrupt"}, False, id="another page"),
    ],
)
def test_a_run_should_stop_only_on_a_collapse_and_if_it_opted_in(
    config: dict[str, Any], health: dict[str, Any], stops: bool
) -> None:
    run = WatchedRun()
    run.receive(wire.Start(**WATCHED_ORIGIN, config=config), at=0.0)
    teach(run, range(6))
    assert run.view.advice is not None
    assert not run.view.advice.stop
    teach(run, range(6, 14), **health)
    assert run.view.advice.stop
    assert run.view.advice.should_stop is stops
    assert ("should_stop" in run.view.advice.reasons) is stops


@pytest.mark.parametrize("kl", [0.5, 0.15], ids=["while the policy drifts", "and nothing else does"])
def test_a_jump_in_response_length_cuts_the_learning_rate_once_and_never_alone(kl: float) -> None:
    run = WatchedRun()
    for step in range(150):
        length, value = (32, 0.15) if step < 120 else (160, kl)
        counts = finished((step - 1, None, 1)) if step else []
        content = columns(8, n_tokens=np.full(8, length))
        sent = healthy_report(step, content=content, policy=None, finished=counts, scalars={"ref_kl": value})
        run.receive(sent, at=10.0 * step)
    assert run.view.judgement is not None
    assert "length_surge" in [found.finding for found in run.view.judgement.findings]
    assert run.view.advice is not None
    cut = run.view.advice.lr_decay
    assert (cut is None) is (kl < 0.5)
    assert cut is None or (cut.factor == 0.5 and 120 <= cut.step <= 135)
