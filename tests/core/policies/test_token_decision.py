"""Token rules against a plain reference, and under bad input."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.examples import POISON
from tests.core.examples import batch as batch_without_advantages
from tests.core.reference import PAIRS
from trmon_client.core import statistics
from trmon_client.core.arrays import NUMPY, torch_arrays
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.policies.criteria import Criterion, TokenRule
from trmon_client.core.policies.decision import Decision, decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_decision import (
    TokenDecision,
    apply_token_rules,
    apply_token_rules_to_inputs,
    fraction_dropped,
    kept_by_second_moment,
)
from trmon_client.core.signals import batch_signals

LOGPS = ("rollout_logprobs", "old_logprobs", "logprobs")
EVERY_RULE = (*TOKEN_POLICIES, "seq_mis", "gspo")
BY_RATIO = ("icepop", "tis", "seq_tis")
"""Rules that read nothing but the ratio; those of verl's rejection modes have a reference in test_presets.py."""


def batch(seed: int, **options: Any) -> dict[str, Any]:
    given = batch_without_advantages(seed, **options)
    return given | {"advantages": np.random.default_rng(seed).normal(size=given["mask"].shape)}


def expected_decision(name: str, given: dict[str, Any], pair: str) -> tuple[list[list[bool]], list[list[float]]]:
    """Return the mask and weights of a policy with default bounds, computed one token at a time."""
    above, below = PAIRS[pair]
    masks, weights = [], []
    for i, row in enumerate(given["mask"]):
        valid = [bool(on) and all(-1000 < given[p][i][t] <= 1e-4 for p in LOGPS) for t, on in enumerate(row)]
        d = [float(given[above][i][t]) - float(given[below][i][t]) if ok else 0.0 for t, ok in enumerate(valid)]
        kept = [
            ok and (name != "icepop" or math.log(0.5) <= x <= math.log(5.0)) for ok, x in zip(valid, d, strict=True)
        ]
        masks.append(kept)
        weights.append([weight(name, x, math.fsum(d)) if ok else 0.0 for ok, x in zip(kept, d, strict=True)])
    return masks, weights


def weight(name: str, d: float, sum_d: float) -> float:
    ratio = math.exp(max(-20.0, min(20.0, d)))
    by_rule = {"icepop": ratio, "tis": min(ratio, 2.0), "seq_tis": math.exp(min(sum_d, math.log(2)))}
    return by_rule.get(name, 1.0)


@pytest.mark.parametrize("name", BY_RATIO)
@pytest.mark.parametrize("noise", [1e-3, 0.1, 2.0], ids=lambda noise: f"noise {noise}")
@pytest.mark.parametrize("odd", [0.0, 0.1], ids=["clean", "poisoned"])
def test_masks_and_weights_equal_the_plain_reference(name: str, noise: float, odd: float) -> None:
    given = batch(seed=11, n_sequences=9, noise=noise, odd=odd)
    found = apply_token_rules(preset(name), **given)
    masks, weights = expected_decision(name, given, "mismatch")
    assert found.mask.tolist() == masks
    np.testing.assert_allclose(found.weights, weights, rtol=1e-6, atol=1e-30)
    assert (found.mask.dtype, found.weights.dtype) == (bool, np.float32)


@pytest.mark.parametrize("name", EVERY_RULE)
def test_columns_sum_the_masks_and_weights(name: str) -> None:
    given = batch(seed=3, noise=0.01, odd=0.05)
    found = apply_token_rules(preset(name), **given)
    columns = found.attached_to(statistics.columns(**given))
    assert columns["n_token_masked"].tolist() == (columns["n_tokens"] - found.mask.sum(axis=1)).tolist()
    np.testing.assert_allclose(columns["sum_token_weight"], found.weights.sum(axis=1, dtype=float), rtol=1e-6)
    squares = found.weights.astype(float) ** 2
    np.testing.assert_allclose(columns["sum_sq_token_weight"], squares.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("name", EVERY_RULE)
def test_an_invalid_token_has_no_weight_and_does_not_affect_its_sequence(name: str) -> None:
    given = batch(seed=4)
    given["mask"][2, 5] = False
    expected = apply_token_rules(preset(name), **given)
    given["mask"][2, 5] = True
    for value in POISON:
        given["old_logprobs"][2, 5] = value
        assert_same(apply_token_rules(preset(name), **given), expected, message=f"{value}")


def test_icepop_with_every_token_out_of_range_has_weight_zero_and_a_nan_ess() -> None:
    rollout = np.full((2, 3), -5.0)
    given = {"rollout_logprobs": rollout, "logprobs": rollout + 3, "mask": rollout < 0}
    found = apply_token_rules(preset("icepop"), **given)
    assert not found.mask.any()
    assert not found.weights.any()
    computed = batch_signals.compute(found.attached_to(statistics.columns(**given)))
    assert (computed["token_mask_rate"], computed["token_weight_mean"]) == (1.0, 0.0)
    assert math.isnan(computed["token_weight_ess"])


@pytest.mark.parametrize(("d", "expected"), [(900.0, 2.0), (-900.0, 0.0)])
def test_a_sequence_ratio_that_overflows_is_truncated(d: float, expected: float) -> None:
    old = np.full((1, 4), -950.0 if d > 0 else -1.0)
    found = apply_token_rules(preset("seq_tis"), old_logprobs=old, logprobs=old + d, mask=old < 0)
    assert found.weights.tolist() == [[expected] * 4]
    assert found.columns["n_token_truncated"].tolist() == [4 if d > 0 else 0]


def test_bounds_are_inclusive() -> None:
    rollout = np.array([[-1.0, -1.0]])
    given = {"rollout_logprobs": rollout, "logprobs": np.array([[-0.5, -1.5]]), "mask": rollout < 0}
    assert apply_token_rules(preset("token_k2", upper=0.125), **given).mask.all()
    assert not apply_token_rules(preset("token_k2", upper=math.nextafter(0.125, 0)), **given).mask.any()


def test_k1_bounds_apply_to_the_ratio_where_verl_compares_its_inverse() -> None:
    """With the bounds 0.6_1.4 verl at 1dda039, which compares -d, keeps a ratio of 1.5 and rejects 0.65."""
    rollout = np.full((1, 2), -3.0)
    given = {"rollout_logprobs": rollout, "logprobs": rollout + np.log([[1.5, 0.65]]), "mask": rollout < 0}
    assert apply_token_rules(preset("token_k1", lower=0.6, upper=1.4), **given).mask.tolist() == [[False, True]]


def test_rules_of_a_policy_combine_their_masks_and_the_single_weight() -> None:
    given = batch(seed=6, noise=0.5)
    both = Policy("both", (), (TokenRule("token_k2", upper=0.05), TokenRule("tis", upper=1.1)))
    found = apply_token_rules(both, **given)
    k2, tis = (apply_token_rules(Policy("one", (), (rule,)), **given) for rule in both.tokens)
    assert found.mask.tolist() == k2.mask.tolist()
    assert found.weights.tolist() == np.where(k2.mask, tis.weights, 0).tolist()


def test_a_policy_without_token_rules_keeps_valid_tokens_with_weight_one() -> None:
    given = batch(seed=6, odd=0.1)
    found = apply_token_rules(preset("trm"), **given)
    assert found.mask.sum() == statistics.columns(**given)["n_tokens"].sum()
    assert found.weights.tolist() == found.mask.astype(float).tolist()


def test_a_rule_reads_its_pair_and_names_what_is_missing() -> None:
    given = batch(seed=2, noise=0.5)
    total = apply_token_rules(Policy("p", (), (TokenRule("tis", "total", upper=2.0),)), **given)
    _, weights = expected_decision("tis", given, "total")
    np.testing.assert_allclose(total.weights, weights, rtol=1e-6)
    staleness = Policy("p", (), (TokenRule("tis", "staleness", upper=2.0),))
    del given["old_logprobs"]
    for decided in (
        lambda: apply_token_rules(staleness, **given),
        lambda: decide(statistics.columns(**given), staleness),
    ):
        with pytest.raises(PolicyError, match="tis of staleness needs logprobs and old_logprobs"):
            decided()


@pytest.mark.parametrize("name", EVERY_RULE)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1)])
def test_batches_without_sequences_or_tokens_or_with_one_token_are_allowed(name: str, shape: tuple[int, int]) -> None:
    logp = np.full(shape, -1.0)
    given = {"rollout_logprobs": logp, "logprobs": logp, "mask": np.ones(shape), "advantages": np.ones(shape)}
    found = apply_token_rules(preset(name), **given)
    assert found.mask.sum() == found.weights.sum() == logp.size


def test_token_rules_do_not_change_the_decision_of_the_criteria() -> None:
    given = batch(seed=1, noise=0.3)
    policy = Policy("both", (Criterion("max_abs_d", upper=0.5),), (TokenRule("tis", upper=2.0),))
    columns = statistics.columns(**given)
    alone = decide(columns, Policy("one", policy.criteria))
    assert decide(columns, policy).codes.tolist() == alone.codes.tolist()


@pytest.mark.parametrize("name", EVERY_RULE)
@pytest.mark.parametrize("n_sequences", [5, 2000])
def test_torch_and_numpy_give_the_same_token_decision(name: str, n_sequences: int) -> None:
    given = batch(seed=9, n_sequences=n_sequences, noise=0.5, odd=0.05)
    inputs = check_inputs(**given)
    host = apply_token_rules_to_inputs(preset(name), inputs)
    device = apply_token_rules_to_inputs(preset(name), inputs.mapped(lambda array: torch.from_numpy(np.array(array))))
    assert device.mask.tolist() == host.mask.tolist()
    np.testing.assert_allclose(device.weights.numpy(), host.weights, rtol=1e-6)
    for column, array in host.columns.items():
        np.testing.assert_allclose(device.columns[column].numpy(), array, rtol=1e-12)
        assert str(device.columns[column].dtype).endswith(str(array.dtype))


@pytest.mark.parametrize("name", EVERY_RULE)
def test_torch_never_reads_a_value_from_the_device(name: str) -> None:
    given = {p: np.zeros((4, 8), np.float32) for p in LOGPS}
    inputs = check_inputs(**given, mask=np.ones((4, 8)), advantages=np.ones(4))
    found = apply_token_rules_to_inputs(preset(name), inputs.mapped(lambda array: torch.from_numpy(array).to("meta")))
    assert {found.mask.device.type, found.weights.device.type} == {"meta"}
    assert (found.mask.shape, found.weights.shape) == ((4, 8), (4, 8))


def assert_same(found: TokenDecision, expected: TokenDecision, *, message: str) -> None:
    assert found.mask.tolist() == expected.mask.tolist(), message
    assert found.weights.tolist() == expected.weights.tolist(), message
    assert found.columns.keys() == expected.columns.keys(), message
    for name, counts in expected.columns.items():
        assert found.columns[name].tolist() == counts.tolist(), (message, name)


class TestSeqMis:
    """[3P]: accepted sequences carry the weight exp(S), rejected ones 0."""

    old = np.full((4, 3), -4.0)
    d = np.array([[0.1, 0.2, 0.3], [-2.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])
    mask = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0]], bool)

    def found(self, policy: str = "seq_mis", **given: Any) -> TokenDecision:
        return apply_token_rules(preset(policy), mask=self.mask, **given)

    def test_a_sequence_has_the_weight_of_its_ratio_up_to_the_bound_and_none_above_it(self) -> None:
        found = self.found(rollout_logprobs=self.old - self.d, old_logprobs=self.old, logprobs=self.old)
        assert found.weights[:, 0] == pytest.approx([math.exp(0.6), math.exp(-2.0), 0.0, 1.0])
        assert found.mask.tolist() == (self.mask & [[True], [True], [False], [True]]).tolist()
        assert found.weights[3].tolist() == [1.0, 1.0, 0.0]
        assert found.columns["sum_token_weight"] == pytest.approx([3 * math.exp(0.6), 3 * math.exp(-2.0), 0.0, 2.0])

    def test_without_mismatch_it_is_the_mask_alone(self) -> None:
        given = {"rollout_logprobs": self.old - self.d, "logprobs": self.old}
        found = self.found(**given)
        assert found.weights.tolist() == self.mask.astype(float).tolist()
        decision = decide(statistics.columns(**given, mask=self.mask), preset("seq_mis"))
        assert decision.accepted.tolist() == [True, True, False, True]
        assert preset("seq_mis").needs == ()
        alone = self.found("seq_mis_mask", rollout_logprobs=self.old - self.d, old_logprobs=self.old)
        assert alone.weights.tolist() == self.mask.astype(float).tolist()

    def test_a_bound_applies_to_the_mask_and_to_the_weights(self) -> None:
        policy = preset("seq_mis", upper=1.5)
        assert (policy.criteria[0].upper, policy.tokens[0].upper) == (1.5, 1.5)


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


def test_the_thresholds_of_dppo_are_inclusive_and_may_differ_by_side() -> None:
    policy = Policy("p", (), (TokenRule("dppo", "primary", lower=-0.25, upper=0.125),))
    p, q = np.log([[0.625, 0.626, 0.25, 0.249]]), np.log([[0.5, 0.5, 0.5, 0.5]])
    given = {"rollout_logprobs": q, "logprobs": p, "advantages": np.array([[1.0, 1.0, -1.0, -1.0]]), "mask": p < 0}
    p_minus_q = np.exp(p) - np.exp(q)
    assert p_minus_q[0, [0, 2]].tolist() == pytest.approx([0.125, -0.25], abs=1e-15)
    assert apply_token_rules(policy, **given).mask.tolist() == [[True, False, True, False]]


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


@pytest.mark.parametrize("denominator", ["old_logprobs", "rollout_logprobs"], ids=["old", "mu, where it is the old"])
def test_cispo_weights_by_the_ratio_of_ppo_truncated_above_alone(denominator: str) -> None:
    found = apply_token_rules(preset("cispo"), **of_cases(logprobs="p", **{denominator: "q"}))
    np.testing.assert_allclose(found.weights[0], [min(p / q, 1.2) for p, q, _ in CASES], rtol=1e-6)
    assert found.mask.all()
    assert found.columns["n_token_truncated"].tolist() == [sum(p / q > 1.2 for p, q, _ in CASES)]


def of_sequences(rows: list[tuple[float, ...]], advantages: list[float]) -> tuple[TokenDecision, Decision]:
    """Return what gspo decides on the tokens and sequences with these log-ratios of the staleness pair."""
    old = [np.full(len(row), -4.0) for row in rows]
    new = [np.array(row) - 4.0 for row in rows]
    given = {"old_logprobs": old, "logprobs": new, "advantages": np.array(advantages)}
    return apply_token_rules(preset("gspo"), **given), decide(statistics.columns(**given), preset("gspo"))


def test_gspo_rejects_the_sequences_on_the_clipped_branch_and_weights_by_their_mean_ratio() -> None:
    values = (-1e-3, -2e-4, 0.0, 3e-4, 1e-3)
    cases = [
        (row, advantage)
        for n in (1, 2, 3)
        for row in itertools.product(values, repeat=n)
        for advantage in (-1.0, 0.0, 2.0)
    ]
    rows, advantages = [row for row, _ in cases], [advantage for _, advantage in cases]
    tokens, decision = of_sequences(rows, advantages)
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
    assert of_sequences([(0.0,), (0.0,)], [math.nan, 1.0])[1].reasons == ["advantage", None]


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


def largest_allowed_subset(squares: list[float], limit: float) -> int:
    """Return the size of the largest subset whose mean is below the limit, by trying all of them; at least 1."""
    sizes = [
        n
        for n in range(1, len(squares) + 1)
        if any(math.fsum(chosen) / n < limit for chosen in itertools.combinations(squares, n))
    ]
    return max(sizes, default=1)


@pytest.mark.parametrize("seed", range(40))
def test_it_keeps_the_largest_set_of_tokens_whose_second_moment_is_below_the_limit(seed: int) -> None:
    random = np.random.default_rng(seed)
    squares = random.choice([0.0, 1e-3, 0.02, 0.05, 0.1, 0.7, 4.0], (2, 5))
    limit = float(random.choice([5e-4, 0.04, 0.2, 10.0]))
    kept = kept_by_second_moment(NUMPY, squares, valid=np.ones((2, 5), bool), limit=limit)
    assert kept.sum() == largest_allowed_subset(squares.ravel().tolist(), limit)
    if not kept.all():
        assert squares[kept].max() <= squares[~kept].min()


def test_of_equal_tokens_the_first_are_kept_by_numpy_and_torch_alike() -> None:
    squares, valid = np.array([[0.0, 0.1, 0.1], [0.1, 0.0, 0.0]]), np.ones((2, 3), bool)
    kept = kept_by_second_moment(NUMPY, squares, valid=valid, limit=0.05)
    assert kept.tolist() == [[True, True, True], [False, True, True]]
    tensors = {"valid": torch.from_numpy(valid), "limit": 0.05}
    assert kept_by_second_moment(torch_arrays(), torch.from_numpy(squares), **tensors).tolist() == kept.tolist()


def test_one_valid_token_is_kept_however_large_and_invalid_ones_never() -> None:
    squares, valid = np.array([[9.0, 0.0, 4.0]]), np.array([[True, False, True]])
    assert kept_by_second_moment(NUMPY, squares, valid=valid, limit=0.04).tolist() == [[False, False, True]]
    nothing = kept_by_second_moment(NUMPY, squares, valid=valid & False, limit=0.04)
    assert not nothing.any()


def drifted_by(d: np.ndarray[Any, Any]) -> dict[str, Any]:
    rollout = np.full(d.shape, -20.0)
    return {"rollout_logprobs": rollout, "old_logprobs": rollout + d, "mask": np.ones(d.shape, bool)}


def test_the_mask_is_of_the_whole_call_even_if_it_is_computed_in_blocks_elsewhere() -> None:
    d = np.random.default_rng(0).normal(0, 0.5, (300, 2000))
    given = drifted_by(d)
    found = apply_token_rules(preset("m2po"), **given)
    kept = (d**2)[found.mask]
    smallest_dropped = (d**2)[~found.mask].min()
    assert kept.mean() < 0.04 <= (kept.sum() + smallest_dropped) / (kept.size + 1)
    assert kept.max() <= smallest_dropped
    assert found.weights.tolist() == found.mask.astype(float).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_the_fraction_dropped_of_counted_values_is_that_of_the_tokens(seed: int) -> None:
    random = np.random.default_rng(seed)
    values, counts = np.array([0.0, 0.01, 0.04, 0.2, 1.0, math.inf]), random.integers(0, 30, 6)
    counts[0] += 1
    tokens = np.repeat(np.where(np.isinf(values), 1e6, values), counts)[None]
    kept = kept_by_second_moment(NUMPY, tokens, valid=np.ones(tokens.shape, bool), limit=0.04)
    assert fraction_dropped(values, counts, limit=0.04) == pytest.approx(1 - kept.mean())


def test_the_fraction_dropped_without_tokens_is_nan_and_one_token_is_kept() -> None:
    assert math.isnan(fraction_dropped(np.array([0.0]), np.array([0]), limit=0.04))
    assert fraction_dropped(np.array([0.0, 1.0]), np.array([0, 4]), limit=0.04) == 0.75
