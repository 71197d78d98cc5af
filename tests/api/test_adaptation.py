"""Adaptation over HTTP: shown, applied, received by the trainer, rolled back permanently."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.domain.adaptation import stream
from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RUN = "/api/v1/runs/math/grpo"
K3 = stream.K3.spec()


def set_(client: httpx.Client, mode: str, **setting: Any) -> dict[str, Any]:
    answer = client.put(f"{RUN}/adaptation", json={"mode": mode, **setting})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{RUN}/adaptation").json()
    return found


def train(client: httpx.Client, steps: range) -> None:
    for step in steps:
        send_step(client, MATH, step=step, content=stream.batch(np.random.default_rng(step), n=64))
    eventually(lambda: client.get(f"{RUN}/batches").json()["items"], lambda rows: rows and rows[0]["step"] >= steps[-2])


@pytest.fixture
def run(client: httpx.Client) -> httpx.Client:
    send(client, MATH, wire.Start(**ORIGIN))
    assert client.put(f"{RUN}/policy", json={"policy": K3}).status_code == 200
    return client


def test_a_new_run_is_not_adapted(run: httpx.Client) -> None:
    found = shown(run)
    assert (found["mode"], found["target_mask_rate"], found["recommended"]) == ("off", None, None)


def test_a_recommendation_shows_its_effect_without_changing_the_policy(run: httpx.Client) -> None:
    set_(run, "recommend")
    train(run, range(10))
    found = shown(run)["recommended"]
    assert found["hold"] is None
    assert found["n_sequences"] >= 256
    assert found["mask_rate_after"] == pytest.approx(0.05, abs=0.005)
    (move,) = found["moves"]
    assert (move["statistic"], move["before"]) == ("mean_k3", 0.01)
    tried = run.post(f"{RUN}/whatif", json={"policy": found["policy"]}).json()
    assert tried["total"]["mask_rate"] == pytest.approx(found["mask_rate_after"], abs=0.005)
    assert len(run.get(f"{RUN}/policy/history").json()["items"]) == 2


def test_too_few_sequences_are_reported(run: httpx.Client) -> None:
    set_(run, "recommend")
    found = shown(run)
    assert found["recommended"]["hold"] == "too_few_sequences"
    assert found["bound_budget"]["hold"] == "too_few_sequences"


def test_the_bound_budget_gives_its_reason_to_hold(run: httpx.Client) -> None:
    set_(run, "recommend")
    train(run, range(10))
    assert shown(run)["bound_budget"]["hold"] in ("no_measured_gain", "nothing_to_move")


def applied(run: httpx.Client) -> dict[str, Any]:
    """Train under `apply` until a version is created, and return it."""
    set_(run, "apply", every_steps=4)
    train(run, range(10))
    versions = eventually(lambda: run.get(f"{RUN}/policy/history").json()["items"], lambda versions: len(versions) > 2)
    made: dict[str, Any] = versions[-3]
    return made


def test_an_applied_bound_is_a_policy_version_that_the_trainer_receives(run: httpx.Client) -> None:
    version = applied(run)
    assert version["author"] == "trmon:target_mask_rate"
    assert version["evidence"]["mask_rate_after"] == pytest.approx(0.05, abs=0.01)
    assert "mean_k3 upper" in version["reason"]

    def heard() -> wire.PolicyUpdate | None:
        body = wire.encode(report(step=90, policy=stream.K3.hash, accepted=b"\0"))
        answer = run.post(f"{RUN}/reports", content=body, headers={"Content-Type": wire.MSGPACK})
        return wire.decode_ack(answer.content).policy

    update = eventually(heard, lambda update: update is not None)
    assert update is not None
    assert update.spec["name"] == "k3 (adapted)"


def test_rolling_back_a_controllers_change_pins_the_restored_version(run: httpx.Client) -> None:
    applied(run)
    back = run.post(f"{RUN}/policy/rollback", json={"hash": stream.K3.hash}).json()
    assert (back["policy"], back["pinned"]) == (K3, True)
    assert shown(run)["recommended"]["hold"] == "pinned"
    train(run, range(10, 24))
    assert run.get(f"{RUN}/policy").json()["policy"] == K3


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"mode": "sometimes"}, "mode"),
        ({}, "mode"),
        ({"mode": "apply", "target_mask_rate": 0.9}, "target_mask_rate"),
        ({"mode": "apply", "window_sequences": 10}, "window_sequences"),
        ({"mode": "apply", "every_steps": 0}, "every_steps"),
        ({"mode": "apply", "ceiling": 3}, "ceiling"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_with_its_field(
    run: httpx.Client, setting: dict[str, object], field: str
) -> None:
    answer = run.put(f"{RUN}/adaptation", json=setting)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert shown(run)["mode"] == "off"
