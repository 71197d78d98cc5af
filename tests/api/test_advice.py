"""Advice from a run's batches to its trainer: over HTTP, and with acknowledgements."""

from __future__ import annotations

import math
from typing import Any

import httpx
import numpy as np
import pytest

from tests.domain.trainer import finished
from tests.domain.trainer import report as healthy_report
from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from tests.worker.watched_run import ORIGIN as WATCHED_ORIGIN
from tests.worker.watched_run import WatchedRun
from trmon_client.core import wire
from trmon_client.core.columns import Columns

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


def drifted(client: httpx.Client) -> dict[str, Any]:
    """Train on-policy for 24 steps, then far off-policy, and return the advice."""
    send(client, MATH, wire.Start(**ORIGIN, config={"kl_target": 6.0}))
    for step in range(30):
        send_step(client, MATH, step=step, content=batch(step, drift=0.1 if step < 24 else 1.5))
        if step == 23:
            # What the run was like at its start is known once its first rows are written.
            eventually(lambda: advice_of(client), lambda advice: advice.get("step") == 22)
    return eventually(lambda: advice_of(client), lambda advice: advice.get("step") == 28)


def test_a_drifting_run_gets_advice_to_lower_its_learning_rate(client: httpx.Client) -> None:
    advice = drifted(client)
    assert 0 < advice["lr_scale_sgd"] < advice["lr_scale"] < 0.8
    assert advice["lr_scale_sgd"] == pytest.approx(advice["lr_scale"] ** 2)
    assert "ess_seq" in advice["reasons"]["lr_scale"]
    assert (advice["lr_decay"], advice["kl_factor"]) == (None, None)


def test_the_trainer_receives_advice_with_acknowledgements(client: httpx.Client) -> None:
    shown = drifted(client)
    heard = acked(client, step=40)
    assert heard is not None
    assert heard["lr_scale"] == shown["lr_scale"]
    assert heard["reasons"].keys() == shown["reasons"].keys()


def test_a_new_attempt_gets_no_advice_from_the_previous_one(client: httpx.Client) -> None:
    drifted(client)
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


def test_a_run_with_corrupt_log_probs_gets_advice_to_stop() -> None:
    run = WatchedRun()
    teach(run, range(6))
    assert run.view.advice is not None
    assert not run.view.advice.stop
    teach(run, range(6, 14), health="corrupt")
    assert run.view.advice.stop
    assert "dropped log-probs" in run.view.advice.reasons["stop"]


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
    teach(run, range(6, 14), **health)
    assert run.view.advice is not None
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
