"""Adaptation over HTTP: shown, applied, received by the trainer, rolled back permanently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.domain.adaptation import stream
from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.running_service import OwnRun
from tests.fixtures.trainer import send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

K3 = stream.K3.spec()


def start(run: OwnRun, **setting: Any) -> None:
    run.send(wire.Start(**ORIGIN))
    assert run.ask("PUT", "/policy", {"policy": K3}).status_code == 200
    assert run.ask("PUT", "/adaptation", setting).status_code == 200


def learn(run: OwnRun, steps: range) -> None:
    for step in steps:
        send_step(run.client, run.key, step=step, content=stream.batch(np.random.default_rng(step), n=64))
    eventually(lambda: run.get("/batches")["items"], lambda rows: rows and rows[0]["step"] >= steps[-2])


def test_a_recommendation_shows_its_effect_without_changing_the_policy(run: OwnRun) -> None:
    start(run, mode="recommend")
    young = run.get("/adaptation")
    assert {young[name]["hold"] for name in ("recommended", "bound_budget")} == {"too_few_sequences"}
    learn(run, range(10))
    shown = run.get("/adaptation")
    found = shown["recommended"]
    assert found["hold"] is None
    assert found["n_sequences"] >= 256
    assert found["mask_rate_after"] == pytest.approx(0.05, abs=0.005)
    (move,) = found["moves"]
    assert (move["statistic"], move["before"]) == ("mean_k3", 0.01)
    assert shown["bound_budget"]["hold"] in ("no_measured_gain", "nothing_to_move")
    tried = run.ask("POST", "/whatif", {"policy": found["policy"]}).json()
    assert tried["total"]["mask_rate"] == pytest.approx(found["mask_rate_after"], abs=0.005)
    assert len(run.get("/policy/history")["items"]) == 2


def test_an_applied_bound_reaches_the_trainer_and_a_rollback_pins_the_one_before(run: OwnRun) -> None:
    start(run, mode="apply", every_steps=4)
    learn(run, range(10))
    versions = eventually(lambda: run.get("/policy/history")["items"], lambda versions: len(versions) > 2)
    version = versions[-3]
    assert version["author"] == "trmon:target_mask_rate"
    assert version["evidence"]["mask_rate_after"] == pytest.approx(0.05, abs=0.01)
    assert "mean_k3 upper" in version["reason"]

    def heard() -> wire.PolicyUpdate | None:
        body = wire.encode(
            report(step=10, policy=stream.K3.hash, accepted=b"\0", finished=[wire.ChunkCount(9, None, 1)])
        )
        path = f"/api/v1/runs/{run.key}/reports"
        answer = run.client.post(path, content=body, headers={"Content-Type": wire.MSGPACK})
        return wire.decode_ack(answer.content).policy

    update = eventually(heard, lambda update: update is not None)
    assert update is not None
    assert update.spec["name"] == "k3 (adapted)"
    back = run.ask("POST", "/policy/rollback", {"hash": stream.K3.hash}).json()
    assert (back["policy"], back["pinned"]) == (K3, True)
    assert run.get("/adaptation")["recommended"]["hold"] == "pinned"
    learn(run, range(11, 24))
    assert run.get("/policy")["policy"] == K3
