"""Policies to be calibrated: their ceilings and floors, their specs, and what trainers receive of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.core.policies.test_policy import MISMATCH
from trmon_client.core.policies.calibration import Calibration
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError

TRM_AUTO = preset("trm_auto")


def test_trm_auto_has_the_criteria_of_trm_on_mismatch_with_the_bounds_at_their_ceilings() -> None:
    trm = preset("trm")
    assert [(c.statistic, c.where) for c in TRM_AUTO.criteria] == [(c.statistic, c.where) for c in trm.criteria]
    assert {c.pair for c in TRM_AUTO.criteria} == {MISMATCH}
    assert {c.statistic: c.upper for c in TRM_AUTO.criteria} == {
        "max_kl": 1.0,
        "max_binary_kl": 1.0,
        "max_abs_d": 5.0,
        "mean_kl": 0.02,
        "mean_k3": 0.02,
    }
    assert TRM_AUTO.calibrate.floor == tuple((None, c.upper) for c in trm.criteria)
    assert (TRM_AUTO.calibrate.rate, TRM_AUTO.calibrate.sequences) == (0.01, 2048)
    faster = Policy.parse({"name": "trm_auto", "calibrate": {"rate": 0.05}})
    assert (faster.criteria, faster.calibrate) == (TRM_AUTO.criteria, replace(TRM_AUTO.calibrate, rate=0.05))


@pytest.mark.parametrize(
    "spec",
    [
        "trm_auto",
        {"name": "geo_mask", "calibrate": {"rate": 0.02, "sequences": 512, "ceiling": 1.1}},
        {"name": "trm", "calibrate": {"ceiling": {"mean_k3": 0.01}}},
        {"name": "token_veto", "calibrate": {}},
        {"name": "mine", "criteria": [{"statistic": "sum_k1", "lower": -1, "upper": 2}], "calibrate": {"ceiling": 9}},
    ],
    ids=str,
)
def test_a_spec_survives_json_and_its_hash_covers_only_what_decides(spec: str | dict[str, Any]) -> None:
    policy = Policy.parse(spec)
    assert Policy.parse(json.loads(json.dumps(policy.spec()))) == policy
    received = Policy.parse(json.loads(json.dumps(policy.decision_spec())))
    assert (received.hash, received.criteria, received.calibrate) == (policy.hash, policy.criteria, None)
    assert "calibrate" not in policy.decision_spec()


@pytest.mark.parametrize(
    ("name", "calibrate", "expected"),
    [
        ("geo_mask", {"ceiling": 1.25}, (pytest.approx(0.8), pytest.approx(1.25))),
        ("token_veto", {"ceiling": 1e-8}, (pytest.approx(1e-8), None)),
        ("seq_max_k3", {}, (None, 25.0)),
    ],
    ids=["a ratio, on both sides", "a lower bound of a ratio alone", "others loosen ten times without a ceiling"],
)
def test_bounds_stand_at_their_ceilings(name: str, calibrate: dict[str, Any], expected: tuple[Any, Any]) -> None:
    policy = Policy.parse({"name": name, "calibrate": calibrate})
    (before,), (found,) = preset(name).criteria, policy.criteria
    assert (found.lower, found.upper) == expected
    assert policy.calibrate == Calibration(floor=((before.lower, before.upper),))


@pytest.mark.parametrize(
    ("calibrate", "named"),
    [
        (3, "must be a mapping"),
        ({"speed": 1}, "unknown key speed"),
        ({"rate": 0.7}, "calibrate.rate"),
        ({"rate": True}, "calibrate.rate"),
        ({"sequences": 10}, "calibrate.sequences"),
        ({"ceiling": 0.001}, "must not be tighter"),
        ({"ceiling": {"max_kl": 1.0}}, "the policy bounds mean_k3"),
        ({"ceiling": "high"}, "must be a number"),
        ({"floor": [], "ceiling": 1}, "ceiling or floor"),
        ({"floor": []}, "list of 1"),
        ({"floor": [{"upper": 9.0}]}, "as tight as its ceiling"),
        ({"floor": [{"upper": None}]}, "mean_k3"),
    ],
    ids=str,
)
def test_an_invalid_calibration_is_rejected_with_its_key(calibrate: Any, named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        Policy.parse({"name": "x", "criteria": [{"statistic": "mean_k3", "upper": 0.002}], "calibrate": calibrate})


@pytest.mark.parametrize("name", [3, None, [], "wisdom"])
def test_only_a_preset_can_be_named_without_criteria(name: Any) -> None:
    with pytest.raises(PolicyError, match="preset"):
        Policy.parse({"name": name, "calibrate": {}})


def test_token_rules_alone_cannot_be_calibrated() -> None:
    with pytest.raises(PolicyError, match="needs criteria"):
        Policy.parse({"name": "tis", "calibrate": {}})
