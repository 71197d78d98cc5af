"""A run's policy over HTTP: author, reason and rollback; trainers receive it with their next acknowledgement."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.trainer import MATH, send
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy, preset

POLICY = "/api/v1/runs/math/grpo/policy"
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
FURTHER = [
    "dppo",
    "dppo_kl",
    "m2po",
    "cispo",
    "gspo",
    "seq_mis_two_sided",
    "close_versions",
    "bypass_pg_is",
    "disabled",
]


@pytest.fixture
def run(client: httpx.Client) -> httpx.Client:
    send(client, MATH, wire.Start(**ORIGIN))
    return client


def put(client: httpx.Client, policy: object, **changed: object) -> dict[str, object]:
    answer = client.put(POLICY, json={"policy": policy, **changed})
    assert answer.status_code == 200, answer.text
    version: dict[str, object] = answer.json()
    return version


def heard(client: httpx.Client, *, step: int) -> wire.PolicyUpdate | None:
    body = wire.encode(report(step=step, policy=preset("trm_auto").hash, accepted=b"\0"))
    path = "/api/v1/runs/math/grpo/reports"
    return wire.decode_ack(client.post(path, content=body, headers={"Content-Type": wire.MSGPACK}).content).policy


def test_a_new_run_has_the_default_policy(run: httpx.Client) -> None:
    version = run.get(POLICY).json()
    assert (version["name"], version["author"], version["calibration"]) == ("trm_auto", "trmon", "uncalibrated")
    assert [shadow["name"] for shadow in version["shadows"]] == ["trm_max", "geo_mask", "token_veto"]
    assert len(run.get(f"{POLICY}/history").json()["items"]) == 1


def test_the_trainer_receives_a_change_with_its_next_acknowledgement(run: httpx.Client) -> None:
    assert heard(run, step=1) is None
    put(run, "geo_mask", from_step=7, reason="long answers")
    update = heard(run, step=2)
    assert update is not None
    assert (update.hash, update.from_step) == (preset("geo_mask").hash, 7)
    assert update.spec == preset("geo_mask").spec()


def test_a_custom_policy_and_other_shadows_can_be_set(run: httpx.Client) -> None:
    version = put(run, CUSTOM, shadows=["seq_mis", CUSTOM])
    assert version["name"] == "mine"
    assert [shadow["name"] for shadow in version["shadows"]] == ["seq_mis", "mine"]  # type: ignore[union-attr,index]


def test_a_policy_to_be_calibrated_reaches_the_trainer_with_its_bounds_alone(run: httpx.Client) -> None:
    version = put(run, {"name": "geo_mask", "calibrate": {"rate": 0.02, "sequences": 512, "ceiling": 1.05}})
    assert version["calibration"] == "uncalibrated"
    assert version["policy"]["calibrate"]["floor"] == [{"lower": 0.99, "upper": 1.01}]  # type: ignore[index]
    update = heard(run, step=1)
    assert update is not None
    assert update.hash == version["hash"]
    assert update.spec.keys() == {"name", "criteria"}
    assert put(run, "trm")["calibration"] is None


def test_a_token_policy_reaches_the_trainer_complete(run: httpx.Client) -> None:
    put(run, "icepop")
    update = heard(run, step=1)
    assert update is not None
    assert Policy.parse(update.spec) == preset("icepop")


def test_shadows_stay_if_a_change_has_none(run: httpx.Client) -> None:
    assert put(run, "geo_mask")["shadows"] == run.get(POLICY).json()["shadows"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "wisdom"}, "policy"),
        ({"policy": {"name": "x", "criteria": []}}, "policy"),
        ({"policy": "trm", "shadows": ["trm_max", "wisdom"]}, "shadows[1]"),
        ({"policy": "trm", "shadows": ["icepop"]}, "shadows[0]"),
        ({"policy": {**VERL, "rollout_is_batch_normalize": True}}, "policy"),
        ({"policy": {**VERL, "rollout_token_veto_threshold": 1e-4}}, "policy"),
        ({"policy": "trm", "from_step": -1}, "from_step"),
        ({}, "policy"),
    ],
    ids=str,
)
def test_an_invalid_policy_is_refused_with_its_field(run: httpx.Client, change: dict[str, object], field: str) -> None:
    answer = run.put(POLICY, json=change)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert run.get(POLICY).json()["name"] == "trm_auto"


@pytest.mark.parametrize("policy", [*FURTHER, VERL], ids=str)
def test_further_policies_and_whole_configurations_of_verl_reach_the_trainer(run: httpx.Client, policy: object) -> None:
    version = put(run, policy)
    update = heard(run, step=2)
    assert update is not None
    expected = Policy.parse(policy)  # type: ignore[arg-type]
    assert (version["name"], update.hash) == (expected.name, expected.hash)
    assert Policy.parse(update.spec) == expected


def test_a_rollback_creates_a_new_version(run: httpx.Client) -> None:
    put(run, "geo_mask")
    put(run, "seq_mis")
    back = run.post(f"{POLICY}/rollback", json={}).json()
    assert (back["name"], back["author"]) == ("geo_mask", "local")
    assert "rolled back" in back["reason"]
    first = run.post(f"{POLICY}/rollback", json={"hash": preset("trm_auto").hash, "reason": "enough"}).json()
    assert (first["name"], first["reason"]) == ("trm_auto", "enough")
    names, path = [], f"{POLICY}/history?limit=2"
    for _ in range(3):
        page = run.get(path).json()
        names += [version["name"] for version in page["items"]]
        path = f"{POLICY}/history?limit=2&after={page['next']}"
    assert page["next"] is None
    assert names == ["trm_auto", "geo_mask", "seq_mis", "geo_mask", "trm_auto"]


def test_a_rollback_without_an_earlier_version_is_a_conflict(run: httpx.Client) -> None:
    assert run.post(f"{POLICY}/rollback", json={}).status_code == 409
    assert run.post(f"{POLICY}/rollback", json={"hash": "beef"}).status_code == 404


def test_a_persons_policy_takes_precedence_over_the_trainers(run: httpx.Client) -> None:
    put(run, "geo_mask")
    send(run, MATH, wire.Start(**{**ORIGIN, "launch": "launch-2"}, sequence=1, policy=preset("seq_mis").spec()))
    assert run.get(POLICY).json()["name"] == "geo_mask"


def test_a_change_made_from_another_policy_than_the_current_one_is_refused(run: httpx.Client) -> None:
    first = run.get(POLICY).json()["hash"]
    second = put(run, "geo_mask", replaces=first)["hash"]
    refused = run.put(POLICY, json={"policy": CUSTOM, "replaces": first})
    assert refused.status_code == 409
    assert "is geo_mask" in refused.json()["detail"]
    assert run.get(POLICY).json()["hash"] == second
    assert len(run.get(f"{POLICY}/history").json()["items"]) == 2
    put(run, CUSTOM, replaces=second)
    put(run, "trm")
