"""verl's options as policies: all eleven modes by name, bounds as verl writes them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.core.batches import batch
from trmon_client.core import statistics
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.acceptance import TOKEN_POLICIES, Policy, PolicyError, TokenRule, decide, preset
from trmon_client.core.policies.verl_options import REJECTION_MODES

PLAIN_STATISTIC = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: np.expm1(d) - d,
}
REDUCTION = {"sum": np.sum, "mean": np.mean, "max": np.max}


def kept(mode: str, d: list[np.ndarray], lower: float | None, upper: float) -> list[list[bool]]:
    """Return what a mode keeps of every token, by its name alone."""
    level, *reduction, estimator = mode.split("_")
    low, high = (None if x is None else math.log(x) if estimator == "k1" else x for x in (lower, upper))
    rows = []
    for row in d:
        terms = PLAIN_STATISTIC[estimator](row)
        values = terms if level == "token" else np.full(len(row), REDUCTION[reduction[0]](terms))
        rows.append(((low is None or values >= low) & (values <= high)).tolist())
    return rows


@pytest.mark.parametrize("mode", REJECTION_MODES)
@pytest.mark.parametrize("u", [1.05, 1.5, 4.0])
def test_every_mode_keeps_the_tokens_that_its_name_says(mode: str, u: float) -> None:
    given = batch(seed=8, n_sequences=30, noise=0.15)
    given["mask"][:, 0] = True
    policy = Policy.parse({"rollout_rs": mode, "rollout_rs_threshold": str(u)})
    accepted = decide(statistics.columns(**given), policy).accepted
    tokens = token_decision.apply_token_rules(policy, **given).mask & accepted[:, None]
    log_ratio = given["old_logprobs"].astype(float) - given["rollout_logprobs"]
    rows = [row[mask] for row, mask in zip(log_ratio, given["mask"], strict=True)]
    expected = kept(mode, rows, 1 / u if mode.endswith("k1") else None, u)
    assert [row[mask].tolist() for row, mask in zip(tokens, given["mask"], strict=True)] == expected


def test_every_mode_is_a_preset_by_its_name() -> None:
    assert len(REJECTION_MODES) == 11
    for mode in REJECTION_MODES:
        assert preset(mode).name == mode
        assert bool(preset(mode).tokens) == (mode in TOKEN_POLICIES)


def test_modes_go_together_each_with_its_bound_beside_a_weight() -> None:
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


def test_one_bound_is_shared_and_a_mode_named_twice_is_one() -> None:
    policy = Policy.parse({"rollout_rs": "seq_mean_k2,seq_max_k2,seq_mean_k2", "rollout_rs_threshold": 0.5})
    assert [(c.statistic, c.upper) for c in policy.criteria] == [("mean_k2", 0.5), ("max_k2", 0.5)]


WEIGHTS: dict[str, tuple[dict[str, Any], TokenRule]] = {
    "tokens, at verl's default": ({"rollout_is": "token"}, TokenRule("tis", upper=2.0)),
    "tokens, cut": ({"rollout_is": "token", "rollout_is_threshold": 3}, TokenRule("tis", upper=3.0)),
    "tokens, in a band": (
        {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0", "rollout_rs": None},
        TokenRule("icepop", lower=0.5, upper=5.0),
    ),
    "sequences": ({"rollout_is": "sequence", "rollout_is_threshold": "2.5"}, TokenRule("seq_tis", upper=2.5)),
}


@pytest.mark.parametrize(("options", "rule"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights(options: dict[str, Any], rule: TokenRule) -> None:
    policy = Policy.parse(options)
    assert (policy.criteria, policy.tokens) == ((), (rule,))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rollout_rs": "token_k4", "rollout_rs_threshold": 1}, "rollout_rs must be of token_k1, .*, and has 'token_k4'"),
    ({"rollout_rs": "token_k1"}, "rollout_rs_threshold must be text or a number, and is NoneType"),
    ({"rollout_rs": "", "rollout_rs_threshold": 1}, "rollout_rs must name something"),
    ({"rollout_rs": ["token_k1"], "rollout_rs_threshold": 1}, "rollout_rs must be text or a number, and is list"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": True}, "must be text or a number, and is bool"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "1,2"}, "has 2 bounds; expected 1 or one for each of 1"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "a_b"}, "must be a bound, or lower_upper .*, and is 'a_b'"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "2_1"}, r"lower \(2\) must not be above upper \(1\)"),
    ({"rollout_rs": "token_k1", "rollout_rs_threshold": "0"}, "upper bounds a ratio and must be above 0"),
    ({"rollout_rs": "token_k2", "rollout_rs_threshold": "nan"}, "upper must be finite"),
    (
        {"rollout_rs": "seq_max_k3", "rollout_rs_threshold": "1_2"},
        "seq_max_k3 must be one upper bound, and is '1_2'",
    ),
    ({"rollout_is": "batch"}, "rollout_is must be token or sequence, and is 'batch'"),
    ({"rollout_is": ["token"]}, r"rollout_is must be token or sequence, and is \['token'\]"),
    ({"rollout_is": {}}, "rollout_is must be token or sequence, and is {}"),
    ({"rollout_is": "sequence", "rollout_is_threshold": "0.5_2"}, "seq_tis takes upper, not lower"),
    (
        {"rollout_is": "token", "rollout_is_batch_normalize": True},
        "unknown key rollout_is_batch_normalize beside",
    ),
    ({"rollout_rs": None}, "1 to 32 criteria, and this one 0"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message[:48] for _, message in REFUSED])
def test_an_option_that_means_nothing_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse(options)
