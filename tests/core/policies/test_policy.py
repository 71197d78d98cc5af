"""Policies: parsing, names and hashes, verl's options, bounds to be calibrated, and specs that are rejected."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.core.examples import batch
from trmon_client.core import statistics
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.calibration import Calibration
from trmon_client.core.policies.criteria import TOKEN_RULES, Criterion, PairChoice, TokenRule
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import KEYS, PRESETS, REJECTION_MODES, TOKEN_POLICIES, VERL_PRESETS
from trmon_client.core.policies.sequence_statistics import PolicyError

MISMATCH: PairChoice = "mismatch_or_primary"


PUBLISHED: dict[str, list[Criterion | TokenRule]] = {
    "geo_mask": [Criterion("geo_ratio", MISMATCH, 0.99, 1.01)],
    "seq_mis_mask": [Criterion("seq_ratio", MISMATCH, upper=2.0)],
    "seq_mis": [Criterion("seq_ratio", MISMATCH, upper=2.0), TokenRule("seq_mis", "mismatch", upper=2.0)],
    "token_veto": [Criterion("min_ratio", MISMATCH, 1e-4)],
    "intellect3": [Criterion("min_ratio", MISMATCH, 1e-5)],
    "opsm": [Criterion("mean_k1", upper=0.1, where="advantage_negative")],
    "seq_mean_k1": [Criterion("geo_ratio", MISMATCH, 0.999, 1.001)],
    "seq_sum_k1": [Criterion("seq_ratio", MISMATCH, 0.5, 2.0)],
    "seq_mean_k3": [Criterion("mean_k3", MISMATCH, upper=0.01)],
    "seq_max_k2": [Criterion("max_k2", MISMATCH, upper=2.5)],
    "trm": [
        Criterion("max_kl", upper=0.05, where="kl_exact"),
        Criterion("max_kl", upper=0.05 + 1e-4, where="kl_lower_bound"),
        Criterion("max_binary_kl", upper=0.05 + 1e-4, where="kl_not_exact"),
        Criterion("max_abs_d", upper=0.5, where="kl_not_exact"),
        Criterion("mean_kl", upper=0.001, where="kl_exact"),
        Criterion("mean_k3", upper=0.001, where="kl_not_exact"),
    ],
    "token_k1": [TokenRule("token_k1", MISMATCH, 0.999, 1.001)],
    "token_k2": [TokenRule("token_k2", MISMATCH, upper=0.01)],
    "token_k3": [TokenRule("token_k3", MISMATCH, upper=0.01)],
    "icepop": [TokenRule("icepop", MISMATCH, 0.5, 5.0)],
    "tis": [TokenRule("tis", MISMATCH, upper=2.0)],
    "seq_tis": [TokenRule("seq_tis", MISMATCH, upper=2.0)],
    "m2po": [TokenRule("m2po", MISMATCH, upper=0.04)],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_its_published_rules_and_bounds(name: str) -> None:
    policy = Policy.parse(name)
    assert [*policy.criteria, *policy.tokens] == PUBLISHED[name]


@pytest.mark.parametrize("name", [*PRESETS, *TOKEN_POLICIES])
def test_an_unpickled_policy_is_one_cached_object_parsed_from_its_spec(name: str) -> None:
    policy = preset(name)
    assert policy.name == name
    unpickled = pickle.loads(pickle.dumps(policy))
    assert (unpickled, unpickled.hash, unpickled.needs) == (policy, policy.hash, policy.needs)
    assert pickle.loads(pickle.dumps(policy)) is unpickled


def test_delta_changes_every_bound_on_the_largest_kl_and_both_of_dppo() -> None:
    changed = preset("trm", delta=0.02)
    uppers = [criterion.upper for criterion in changed.criteria]
    assert uppers == pytest.approx([0.02, 0.0201, 0.0201, 0.5, 0.001, 0.001])
    assert (changed.name, preset("trm", delta=0.05).name) == ("trm(delta=0.02)", "trm")
    (rule,) = preset("dppo", delta=0.2).tokens
    assert (rule.lower, rule.upper, preset("dppo", delta=0.2).name) == (-0.2, 0.2, "dppo(delta=0.2)")


@pytest.mark.parametrize("changed", [{"upper": 4.0}, {"lower": 0.25}])
def test_a_single_k1_bound_applies_in_both_directions_and_others_to_their_side(changed: dict[str, float]) -> None:
    for bounded in (preset("seq_sum_k1", **changed).criteria[0], preset("token_k1", **changed).tokens[0]):
        assert (bounded.lower, bounded.upper) == (0.25, 4.0)
    (criterion,) = preset("geo_mask", upper=1.05).criteria
    assert (criterion.lower, criterion.upper) == (0.99, 1.05)
    assert preset("geo_mask", lower=0.98, upper=1.02).name == "geo_mask(lower=0.98, upper=1.02)"


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        (preset("trm"), ()),
        (preset("opsm"), ("advantages",)),
        (preset("gspo"), ("advantages",)),
        (preset("dppo"), ("advantages",)),
        (preset("close_versions"), ("versions", "trainer_version")),
        (Policy("p", (Criterion("max_kl", upper=1.0),)), ("rollout_logits", "logits")),
        (Policy("p", (Criterion("max_k3", "staleness", upper=1.0),)), ("logprobs", "old_logprobs")),
        (Policy("p", (), (TokenRule("tis", "staleness", upper=2.0),)), ("logprobs", "old_logprobs")),
    ],
    ids=["trm", "opsm", "gspo", "dppo", "close_versions", "max_kl", "a criterion's pair", "a rule's pair"],
)
def test_a_policy_lists_the_arguments_that_it_needs(policy: Policy, needs: tuple[str, ...]) -> None:
    assert set(policy.needs) == set(needs)


def test_every_token_rule_has_a_policy_with_its_name() -> None:
    assert TOKEN_POLICIES.keys() | {"seq_mis", "gspo"} == TOKEN_RULES.keys()


INVALID_RULES: list[tuple[Any, str]] = [
    ({"rule": "ice"}, r"tokens\[0\]: rule must be one of token_k1"),
    ({"upper": 2}, "a token rule needs a rule"),
    ("tis", "a token rule must be a mapping, got str"),
    ({"rule": "tis", "upper": 2, "where": None}, "unknown key where; allowed: rule, pair"),
    ({"rule": "tis"}, "tis takes upper alone"),
    ({"rule": "token_k1", "upper": 2}, "token_k1 takes lower and upper"),
    ({"rule": "icepop", "lower": 5, "upper": 0.5}, r"lower \(5\) must not be above upper \(0.5\)"),
    ({"rule": "icepop", "lower": 0, "upper": 5}, "lower bounds a ratio and must be above 0"),
    ({"rule": "token_k2", "upper": 0}, "token_k2: upper must be above 0, got 0"),
    ({"rule": "tis", "upper": 2, "pair": "both"}, "pair must be one of primary"),
    ({"rule": "dppo", "lower": 0.1, "upper": 0.15}, "dppo: lower must be below 0, got 0.1"),
    ({"rule": "gspo", "upper": 1.1}, "gspo takes no bounds"),
]


@pytest.mark.parametrize(("rule", "message"), INVALID_RULES, ids=[message for _, message in INVALID_RULES])
def test_an_invalid_token_rule_is_rejected_with_the_allowed_values(rule: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse({"name": "p", "criteria": [], "tokens": [rule]})


INVALID_CRITERIA: list[tuple[dict[str, Any], str]] = [
    ({"statistic": "max_klx", "upper": 1}, r"criteria\[0\]: statistic must be one of max_kl"),
    ({"upper": 1}, "needs a statistic"),
    ({"statistic": "max_k3", "pair": "both", "upper": 1}, "pair must be one of primary, mismatch"),
    ({"statistic": "max_k3", "where": "always", "upper": 1}, "where must be one of advantage_negative"),
    ({"statistic": "max_k3", "upper": 1, "bound": 2}, "unknown key bound; allowed: statistic"),
    ({"statistic": "max_k3"}, "needs lower, upper or both"),
    ({"statistic": "max_k3", "upper": math.nan}, "upper must be finite"),
    ({"statistic": "max_k3", "upper": 10**400}, "upper must be finite"),
    ({"statistic": "max_k3", "upper": True}, "upper must be a number, got bool"),
    ({"statistic": "max_k3", "lower": 2, "upper": 1}, r"lower \(2\) must not be above upper \(1\)"),
    ({"statistic": "geo_ratio", "lower": 0}, "must be above 0"),
]


@pytest.mark.parametrize(("criterion", "message"), INVALID_CRITERIA, ids=[message for _, message in INVALID_CRITERIA])
def test_an_invalid_criterion_is_rejected_with_the_allowed_values(criterion: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse({"name": "p", "criteria": [criterion]})


TIS = {"rule": "tis", "upper": 2}
VALID_CRITERION = {"statistic": "max_k3", "upper": 1}
INVALID_POLICIES: list[tuple[Any, str]] = [
    ("trm_maxx", "unknown preset 'trm_maxx'; the presets are trm_max.*icepop"),
    ("x" * 10_000, r"unknown preset 'x{63};"),
    (7, "must be the name of a preset or a mapping, got int"),
    ({}, "requires the keys name and criteria and allows tokens, turns, calibrate and soft_tau, got none"),
    ({"name": "p", "criteria": [VALID_CRITERION], "mode": "x"}, "got name, criteria, mode"),
    ({"name": "p"}, "requires the keys name and criteria"),
    ({"name": "", "criteria": [VALID_CRITERION]}, "name must be text of 1 to 128"),
    ({"name": "x" * 10_000, "criteria": [VALID_CRITERION]}, "name must be text of 1 to 128"),
    ({"name": 3, "criteria": [VALID_CRITERION]}, "name must be text"),
    ({"name": "a\nb", "criteria": [VALID_CRITERION]}, "printable"),
    (
        {"name": "p", "criteria": []},
        "1 to 32 criteria, got 0; with an empty list of tokens too",
    ),
    ({"name": "p", "criteria": [VALID_CRITERION] * 33}, "at most 32 criteria, got 33"),
    ({"name": "p", "criteria": VALID_CRITERION}, "criteria must be a list, got dict"),
    ({"name": "p", "criteria": [], "tokens": TIS}, "tokens must be a list, got dict"),
    ({"name": "p", "criteria": [], "tokens": [TIS] * 9}, "at most 8 tokens, got 9"),
    (
        {"name": "p", "criteria": [], "tokens": [TIS] * 2},
        "at most one rule that weights tokens, got tis and tis",
    ),
]


@pytest.mark.parametrize(("policy", "message"), INVALID_POLICIES, ids=[message[:40] for _, message in INVALID_POLICIES])
def test_an_invalid_policy_is_rejected_with_the_allowed_values(policy: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse(policy)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("geo_mask", {"delta": 0.1}, "geo_mask takes lower and upper, not delta"),
        ("trm_max", {"upper": 0.1}, "trm_max takes delta, not upper"),
        ("trm", {"delta": "0.02"}, "max_kl: delta must be a number, got str"),
        ("geo_mask", {"lower": 1.5}, "must not be above upper"),
        ("seq_mean_k1", {"upper": 0.0}, "must be above 0"),
        ("icepop", {"delta": 0.5}, "icepop takes lower and upper, not delta"),
    ],
)
def test_an_unknown_keyword_or_invalid_bound_of_a_preset_is_rejected(
    name: str, changed: dict[str, float], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        preset(name, **changed)


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
