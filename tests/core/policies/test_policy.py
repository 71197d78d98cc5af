"""Policies: parsing, rejected specs with their messages, names and hashes."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from trmon_client.core.policies.criteria import TOKEN_RULES, Criterion, PairChoice, TokenRule
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
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
