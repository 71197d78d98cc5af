"""DPPO, CISPO, GSPO and two-sided MIS against a reference in Python floats, over every combination of a few values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from trmon_client.core import statistics
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_decision import TokenDecision, apply_token_rules
from trmon_client.core.signals import batch_signals

PROBABILITIES = (1e-8, 1e-3, 0.04, 0.2, 0.36, 0.5, 0.65, 0.93, 0.999)
ADVANTAGES = (-1.5, 0.0, 2.0)
CASES = list(itertools.product(PROBABILITIES, PROBABILITIES, ADVANTAGES))
"""p (the numerator), q (mu) and the advantage of one token."""


def of_cases(**numerator_and_denominator: str) -> dict[str, Any]:
    """Return one sequence with a token for each case."""
    p, q, advantages = (np.array([column]) for column in zip(*CASES, strict=True))
    logp = {"p": np.log(p), "q": np.log(q)}
    given = {name: logp[side] for name, side in numerator_and_denominator.items()}
    return {**given, "mask": np.ones(p.shape, bool), "advantages": advantages}


def plain_kl(p: float, q: float) -> float:
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def masks_by_tv(p: float, q: float, advantage: float) -> bool:
    return p - q > 0.15 if advantage > 0 else p - q < -0.15


def masks_by_kl(p: float, q: float, advantage: float) -> bool:
    return plain_kl(p, q) > 0.05 and (p > q if advantage > 0 else p < q)


@pytest.mark.parametrize(("name", "masks"), [("dppo", masks_by_tv), ("dppo_kl", masks_by_kl)])
def test_dppo_masks_updates_that_move_further_away_and_truncates_the_rest(name: str, masks: Any) -> None:
    given = of_cases(rollout_logprobs="q", logprobs="p")
    found = apply_token_rules(preset(name), **given)
    expected = [not masks(*case) for case in CASES]
    assert found.mask[0].tolist() == expected
    assert 0 < sum(expected) < len(expected)
    weights = [min(p / q, 20.0) if kept else 0.0 for (p, q, _), kept in zip(CASES, expected, strict=True)]
    np.testing.assert_allclose(found.weights[0], weights, rtol=1e-6)
    truncated = sum(kept and p / q > 20 for (p, q, _), kept in zip(CASES, expected, strict=True))
    assert found.columns["n_token_truncated"].tolist() == [truncated]
    computed = batch_signals.compute(found.attached_to(statistics.columns(**given)))
    assert computed["token_mask_rate"] == pytest.approx(1 - sum(expected) / len(expected))
    assert computed["token_trunc_rate"] == pytest.approx(truncated / len(expected))


def test_the_thresholds_of_dppo_are_inclusive_and_may_differ_by_side() -> None:
    policy = Policy("p", (), (TokenRule("dppo", "primary", lower=-0.25, upper=0.125),))
    p, q = np.log([[0.625, 0.626, 0.25, 0.249]]), np.log([[0.5, 0.5, 0.5, 0.5]])
    given = {"rollout_logprobs": q, "logprobs": p, "advantages": np.array([[1.0, 1.0, -1.0, -1.0]]), "mask": p < 0}
    p_minus_q = np.exp(p) - np.exp(q)
    assert p_minus_q[0, [0, 2]].tolist() == pytest.approx([0.125, -0.25], abs=1e-15)
    assert apply_token_rules(policy, **given).mask.tolist() == [[True, False, True, False]]


def test_delta_sets_both_thresholds_of_dppo() -> None:
    (rule,) = preset("dppo", delta=0.2).tokens
    assert (rule.lower, rule.upper, preset("dppo", delta=0.2).name) == (-0.2, 0.2, "dppo(delta=0.2)")


def test_a_token_without_a_known_advantage_is_masked_by_dppo() -> None:
    logp = np.full((2, 3), -1.0)
    given = {"rollout_logprobs": logp, "logprobs": logp, "mask": logp < 0}
    found = apply_token_rules(preset("dppo"), **given, advantages=np.array([1.0, np.nan]))
    assert found.mask.tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize("name", ["dppo", "dppo_kl"])
def test_dppo_without_advantages_is_refused_before_any_token_is_masked(name: str) -> None:
    logp = np.full((2, 3), -1.0)
    given = {"rollout_logprobs": logp, "logprobs": logp, "mask": logp < 0}
    with pytest.raises(PolicyError, match="the policy needs advantages, which was not given"):
        decide(statistics.columns(**given), preset(name))
    with pytest.raises(PolicyError, match=f"{name} needs advantages"):
        apply_token_rules(preset(name), **given)


def test_cispo_weights_by_the_ratio_of_ppo_truncated_above_alone() -> None:
    given = of_cases(old_logprobs="q", logprobs="p")
    found = apply_token_rules(preset("cispo"), **given)
    np.testing.assert_allclose(found.weights[0], [min(p / q, 1.2) for p, q, _ in CASES], rtol=1e-6)
    assert found.mask.all()
    assert found.columns["n_token_truncated"].tolist() == [sum(p / q > 1.2 for p, q, _ in CASES)]


def test_cispo_reads_the_total_where_mu_is_the_old_policy() -> None:
    given = of_cases(rollout_logprobs="q", logprobs="p")
    found = apply_token_rules(preset("cispo"), **given)
    np.testing.assert_allclose(found.weights[0], [min(p / q, 1.2) for p, q, _ in CASES], rtol=1e-6)


def of_sequences(rows: list[tuple[float, ...]], advantages: list[float]) -> tuple[dict[str, Any], TokenDecision, Any]:
    """Return the arguments, and what gspo decides on sequences with these log-ratios of the staleness pair."""
    old = [np.full(len(row), -4.0) for row in rows]
    new = [np.array(row) - 4.0 for row in rows]
    given = {"old_logprobs": old, "logprobs": new, "advantages": np.array(advantages)}
    return given, apply_token_rules(preset("gspo"), **given), decide(statistics.columns(**given), preset("gspo"))


def test_gspo_rejects_the_sequences_on_the_clipped_branch_and_weights_by_their_mean_ratio() -> None:
    values = (-1e-3, -2e-4, 0.0, 3e-4, 1e-3)
    cases = [
        (row, advantage)
        for n in (1, 2, 3)
        for row in itertools.product(values, repeat=n)
        for advantage in (-1.0, 0.0, 2.0)
    ]
    rows, advantages = [row for row, _ in cases], [advantage for _, advantage in cases]
    _, tokens, decision = of_sequences(rows, advantages)
    ratios = [math.exp(math.fsum(row) / len(row)) for row in rows]
    expected = []
    for ratio, advantage in zip(ratios, advantages, strict=True):
        clipped = max(1 - 3e-4, min(1 + 4e-4, ratio))
        # The gradient is that of the smaller product: none where it is the clipped one alone.
        expected.append(ratio * advantage <= clipped * advantage)
    assert decision.accepted.tolist() == expected
    assert 0 < sum(expected) < len(expected)
    np.testing.assert_allclose(tokens.weights[:, 0], ratios, rtol=1e-6)
    assert set(decision.reasons) == {None, "geo_ratio"}


def test_gspo_needs_the_advantage_of_each_sequence() -> None:
    _, _, decision = of_sequences([(0.0,), (0.0,)], [math.nan, 1.0])
    assert decision.reasons == ["advantage", None]


def test_two_sided_mis_weights_sequences_between_both_bounds_and_masks_the_others() -> None:
    sums = np.log([0.4, 0.5000001, 1.0, 1.9999999, 2.1])
    old = np.full((5, 2), -4.0)
    given = {"rollout_logprobs": old - sums[:, None] / 2, "old_logprobs": old, "mask": old < 0}
    decision = decide(statistics.columns(**given), preset("seq_mis_two_sided"))
    assert decision.accepted.tolist() == [False, True, True, True, False]
    found = apply_token_rules(preset("seq_mis_two_sided"), **given)
    assert found.weights[:, 0] == pytest.approx([0.0, 0.5, 1.0, 2.0, 0.0], rel=1e-6)
    assert found.mask.tolist() == [[kept] * 2 for kept in decision.accepted]


def test_close_versions_keeps_sequences_up_to_the_lag() -> None:
    given = {"mask": np.ones((3, 2)), "versions": np.array([[9, 10], [6, 10], [5, 10]]), "trainer_version": 10}
    assert decide(statistics.columns(**given), preset("close_versions")).reasons == [None, None, "version_lag"]
    assert decide(statistics.columns(**given), preset("close_versions", upper=1)).accepted.tolist() == [1, 0, 0]
