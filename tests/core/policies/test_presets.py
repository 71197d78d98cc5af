"""Policies from verl's options: all eleven rejection modes, and bounds in verl's notation."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.core.batches import batch
from trmon_client.core import statistics
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import KEYS, REJECTION_MODES, TOKEN_POLICIES, VERL_PRESETS
from trmon_client.core.policies.sequence_statistics import PolicyError

PLAIN_STATISTIC = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: np.expm1(d) - d,
}
REDUCTION = {"sum": np.sum, "mean": np.mean, "max": np.max}


def expected_mask(mode: str, d: list[np.ndarray], lower: float | None, upper: float) -> list[list[bool]]:
    """Return the tokens that a mode keeps, derived from its name alone."""
    level, *reduction, estimator = mode.split("_")
    low, high = (None if x is None else math.log(x) if estimator == "k1" else x for x in (lower, upper))
    rows = []
    for row in d:
        terms = PLAIN_STATISTIC[estimator](row)
        values = terms if level == "token" else np.full(len(row), REDUCTION[reduction[0]](terms))
        rows.append(((low is None or values >= low) & (values <= high)).tolist())
    return rows


@pytest.mark.parametrize("mode", REJECTION_MODES)
def test_every_mode_keeps_the_tokens_that_its_name_implies(mode: str) -> None:
    assert (preset(mode).name, bool(preset(mode).tokens)) == (mode, mode in TOKEN_POLICIES)
    given = batch(seed=8, n_sequences=30, noise=0.15)
    given["mask"][:, 0] = True
    columns = statistics.columns(**given)
    log_ratio = given["old_logprobs"].astype(float) - given["rollout_logprobs"]
    rows = [row[mask] for row, mask in zip(log_ratio, given["mask"], strict=True)]
    for upper in (1.05, 1.5, 4.0):
        policy = Policy.parse({"rollout_rs": mode, "rollout_rs_threshold": str(upper)})
        tokens = token_decision.apply_token_rules(policy, **given).mask & decide(columns, policy).accepted[:, None]
        expected = expected_mask(mode, rows, 1 / upper if mode.endswith("k1") else None, upper)
        assert [row[mask].tolist() for row, mask in zip(tokens, given["mask"], strict=True)] == expected, upper


def test_several_modes_with_their_bounds_combine_with_a_weight() -> None:
    policy = Policy.parse(
        {
            "rollout_rs": "token_k1, seq_mean_k3",
            "rollout_rs_threshold": "0.5_2.0, 0.01",
            "rollout_is": "token",
            "rollout_is_threshold": "0.5_5.0",
        }
    )
    assert policy.name == "verl(token_k1=0.5_2.0, seq_mean_k3=0.01, token is=0.5_5.0)"
    assert policy.criteria == preset("seq_mean_k3").criteria
    assert policy.tokens == (TokenRule("token_k1", lower=0.5, upper=2.0), TokenRule("icepop", lower=0.5, upper=5.0))
    assert Policy.parse(json.loads(json.dumps(policy.spec()))) == policy


def test_a_single_bound_applies_to_all_modes_and_duplicate_modes_count_once() -> None:
    policy = Policy.parse({"rollout_rs": "seq_mean_k2,seq_max_k2,seq_mean_k2", "rollout_rs_threshold": 0.5})
    assert [(c.statistic, c.upper) for c in policy.criteria] == [("mean_k2", 0.5), ("max_k2", 0.5)]


WEIGHTS: dict[str, tuple[dict[str, Any], TokenRule]] = {
    "tokens, at verl's default": ({"rollout_is": "token"}, TokenRule("tis", upper=2.0)),
    "tokens, truncated": ({"rollout_is": "token", "rollout_is_threshold": 3}, TokenRule("tis", upper=3.0)),
    "tokens, in a range": (
        {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0", "rollout_rs": None},
        TokenRule("icepop", lower=0.5, upper=5.0),
    ),
    "sequences": ({"rollout_is": "sequence", "rollout_is_threshold": "2.5"}, TokenRule("seq_tis", upper=2.5)),
    "sequences, in a range": (
        {"rollout_is": "sequence", "rollout_is_threshold": "0.5_2"},
        TokenRule("seq_mis", lower=0.5, upper=2.0),
    ),
    "in bypass, where REINFORCE applies them": (
        {"rollout_is": "token", "bypass_mode": True, "loss_type": "reinforce"},
        TokenRule("tis", "primary", upper=2.0),
    ),
}


@pytest.mark.parametrize(("options", "rule"), WEIGHTS.values(), ids=WEIGHTS)
def test_weight_options_give_one_token_rule(options: dict[str, Any], rule: TokenRule) -> None:
    policy = Policy.parse(options)
    assert (policy.criteria, policy.tokens) == ((), (rule,))


INVALID_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"rollout_rs": "token_k4", "rollout_rs_threshold": 1}, "rollout_rs must be of token_k1, .*, got 'token_k4'"),
    ({"rollout_rs": "token_k1"}, "rollout_rs_threshold must be text or a number, got NoneType"),
    ({"rollout_rs": "", "rollout_rs_threshold": 1}, "rollout_rs must not be empty"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": True}, "must be text or a number, got bool"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "1,2"}, "has 2 bounds; expected 1 or one for each of 1"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "a_b"}, "must be a bound, or lower_upper .*, got 'a_b'"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "0"}, "upper bounds a ratio and must be above 0"),
    (
        {"rollout_rs": "seq_max_k3", "rollout_rs_threshold": "1_2"},
        "seq_max_k3 must be one upper bound, got '1_2'",
    ),
    ({"rollout_is": "batch"}, "rollout_is must be token or sequence, got 'batch'"),
    (
        {"rollout_is": "token", "rollout_is_threshold": None},
        "rollout_is_threshold is None, with which verl computes no",
    ),
    ({"rollout_is_batch_normalize": True}, "rollout_is_batch_normalize: verl divides the weights by their mean over"),
    ({"bypass_mode": "yes"}, "bypass_mode must be true or false, got 'yes'"),
    ({"loss_type": "grpo"}, "loss_type must be one of ppo_clip, reinforce, got 'grpo'"),
    ({"rollout_is": "token", "rollout_token_veto": 1e-4}, "unknown key rollout_token_veto; verl's options are"),
]


@pytest.mark.parametrize(("options", "message"), INVALID_OPTIONS, ids=[message[:48] for _, message in INVALID_OPTIONS])
def test_an_invalid_option_is_rejected_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse(options)


def test_a_whole_configuration_is_accepted_with_every_field_and_the_name_of_its_class() -> None:
    options = {
        "_target_": "verl.trainer.config.RolloutCorrectionConfig",
        "rollout_is": "sequence",
        "rollout_is_threshold": 2.0,
        "rollout_is_batch_normalize": False,
        "rollout_rs": "seq_mean_k3",
        "rollout_rs_threshold": 0.01,
        "bypass_mode": False,
        "loss_type": "ppo_clip",
    }
    assert set(options) == {*KEYS, "_target_"}
    policy = Policy.parse(options)
    assert policy.name == "verl(seq_mean_k3=0.01, sequence is=2.0)"
    assert (policy.criteria, policy.tokens) == (preset("seq_mean_k3").criteria, (TokenRule("seq_tis", upper=2.0),))


def test_bypass_reads_the_total_and_leaves_the_weights_to_the_ratio_of_ppo() -> None:
    policy = Policy.parse(
        {"rollout_is": "token", "rollout_rs": "token_k2,seq_mean_k3", "rollout_rs_threshold": 0.01, "bypass_mode": True}
    )
    assert policy.name == "verl(bypass, token_k2=0.01, seq_mean_k3=0.01)"
    assert [criterion.pair for criterion in policy.criteria] == ["primary"]
    assert policy.tokens == (TokenRule("token_k2", "primary", upper=0.01),)


def test_options_that_correct_nothing_accept_every_valid_sequence() -> None:
    policy = Policy.parse({"rollout_is": None, "rollout_rs": None})
    assert (policy.name, policy.criteria, policy.tokens) == ("verl(disabled)", (), ())
    given = batch(seed=1, noise=3.0)
    given["mask"][:, 0] = True
    assert decide(statistics.columns(**given), policy).accepted.all()
    assert Policy.parse(json.loads(json.dumps(policy.spec()))) == policy


@pytest.mark.parametrize("name", VERL_PRESETS)
def test_a_preset_of_verl_is_a_policy_of_that_name_with_the_rules_of_its_options(name: str) -> None:
    policy, by_options = preset(name), Policy.parse({"rollout_rs": None, **VERL_PRESETS[name]})
    assert (policy.name, policy.criteria, policy.tokens) == (name, by_options.criteria, by_options.tokens)
    assert Policy.parse(json.loads(json.dumps(policy.spec()))) == policy
    with pytest.raises(PolicyError, match=f"{name} takes no bounds; give verl's options as a mapping"):
        preset(name, upper=3.0)
