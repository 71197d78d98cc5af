"""A run's policy and its adaptation over HTTP: author, reason, rollback, and what the trainer receives."""

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
from trmon_client.core.policies.policy import Policy, preset

CUSTOM = {"name": "mine", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.02}]}
VERL = {
    "rollout_is": "sequence",
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": "seq_mean_k3",
    "rollout_rs_threshold": 0.01,
    "bypass_mode": True,
    "loss_type": "reinforce",
}
"""A whole `RolloutCorrectionConfig`."""


@pytest.fixture
def run(run: OwnRun) -> OwnRun:
    run.send(wire.Start(**ORIGIN))
    return run


def put(run: OwnRun, policy: object, **changed: object) -> dict[str, Any]:
    answer = run.ask("PUT", "/policy", {"policy": policy, **changed})
    assert answer.status_code == 200, answer.text
    version: dict[str, Any] = answer.json()
    return version


def heard(run: OwnRun, *, step: int, **reported: Any) -> wire.PolicyUpdate | None:
    usual: dict[str, Any] = {"policy": preset("trm_auto").hash, "accepted": b"\0"}
    return run.post(report(step=step, **usual | reported)).policy


def test_the_trainer_receives_a_change_with_its_next_acknowledgement(run: OwnRun) -> None:
    assert heard(run, step=1) is None
    put(run, "geo_mask", from_step=7, reason="long answers")
    update = heard(run, step=2)
    assert update is not None
    assert (update.hash, update.from_step) == (preset("geo_mask").hash, 7)
    assert update.spec == preset("geo_mask").spec()


def test_a_policy_to_be_calibrated_reaches_the_trainer_with_its_bounds_alone(run: OwnRun) -> None:
    version = put(run, {"name": "geo_mask", "calibrate": {"rate": 0.02, "sequences": 512, "ceiling": 1.05}})
    assert version["calibration"] == "uncalibrated"
    assert version["policy"]["calibrate"]["floor"] == [{"lower": 0.99, "upper": 1.01}]
    update = heard(run, step=1)
    assert update is not None
    assert update.hash == version["hash"]
    assert update.spec.keys() == {"name", "criteria"}
    assert put(run, "trm")["calibration"] is None


@pytest.mark.parametrize("policy", ["icepop", "disabled", VERL], ids=str)
def test_token_policies_and_whole_configurations_of_verl_reach_the_trainer(run: OwnRun, policy: object) -> None:
    version = put(run, policy)
    update = heard(run, step=2)
    assert update is not None
    expected = Policy.parse(policy)  # type: ignore[arg-type]
    assert (version["name"], update.hash) == (expected.name, expected.hash)
    assert Policy.parse(update.spec) == expected


def test_a_rollback_creates_a_new_version(run: OwnRun) -> None:
    assert run.ask("POST", "/policy/rollback", {}).status_code == 409
    put(run, "geo_mask")
    put(run, "seq_mis")
    back = run.ask("POST", "/policy/rollback", {}).json()
    assert (back["name"], back["author"]) == ("geo_mask", "local")
    assert "rolled back" in back["reason"]
    given = {"hash": preset("trm_auto").hash, "reason": "enough"}
    first = run.ask("POST", "/policy/rollback", given).json()
    assert (first["name"], first["reason"]) == ("trm_auto", "enough")
    names, path = [], "/policy/history?limit=2"
    for _ in range(3):
        page = run.get(path)
        names += [version["name"] for version in page["items"]]
        path = f"/policy/history?limit=2&after={page['next']}"
    assert page["next"] is None
    assert names == ["trm_auto", "geo_mask", "seq_mis", "geo_mask", "trm_auto"]


def test_a_change_made_from_another_policy_than_the_current_one_is_refused(run: OwnRun) -> None:
    first = run.get("/policy")["hash"]
    second = put(run, "geo_mask", replaces=first)["hash"]
    refused = run.ask("PUT", "/policy", {"policy": CUSTOM, "replaces": first})
    assert refused.status_code == 409
    assert "is geo_mask" in refused.json()["detail"]
    assert run.get("/policy")["hash"] == second
    assert len(run.get("/policy/history")["items"]) == 2
    put(run, CUSTOM, replaces=second)
    put(run, "trm")


K3 = stream.K3.spec()


def adapt(run: OwnRun, **setting: Any) -> None:
    put(run, K3)
    assert run.ask("PUT", "/adaptation", setting).status_code == 200


def learn(run: OwnRun, steps: range) -> None:
    for step in steps:
        send_step(run.client, run.key, step=step, content=stream.batch(np.random.default_rng(step), n=64))
    eventually(lambda: run.get("/batches")["items"], lambda rows: rows and rows[0]["step"] >= steps[-2])


def test_a_recommendation_shows_its_effect_without_changing_the_policy(run: OwnRun) -> None:
    adapt(run, mode="recommend")
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
    adapt(run, mode="apply", every_steps=4)
    learn(run, range(10))
    versions = eventually(lambda: run.get("/policy/history")["items"], lambda versions: len(versions) > 2)
    version = versions[-3]
    assert version["author"] == "trmon:target_mask_rate"
    assert version["evidence"]["mask_rate_after"] == pytest.approx(0.05, abs=0.01)
    assert "mean_k3 upper" in version["reason"]
    reported = {"policy": stream.K3.hash, "finished": [wire.ChunkCount(9, None, 1)]}
    update = eventually(lambda: heard(run, step=10, **reported))
    assert update is not None
    assert update.spec["name"] == "k3 (adapted)"
    back = run.ask("POST", "/policy/rollback", {"hash": stream.K3.hash}).json()
    assert (back["policy"], back["pinned"]) == (K3, True)
    assert run.get("/adaptation")["recommended"]["hold"] == "pinned"
    learn(run, range(11, 24))
    assert run.get("/policy")["policy"] == K3
