"""What another policy would have masked, and where sequences stood against the bound in force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.messages import columns
from trmon.domain.analysis.distribution import BINS, CriterionSample, CriterionSamples, distribution
from trmon.domain.analysis.whatif import CoveredRange, WeightTotal, WhatIfEffect
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.statistics import columns as reduced

POLICY = Policy("long is far", (Criterion("sum_k3", "total", upper=1.0),))


def batch(*, lengths: list[int], sum_k3: list[float], advantages: list[float] | None = None) -> Columns:
    n = len(lengths)
    changed = {"n_tokens": np.array(lengths), "total_sum_k3": np.array(sum_k3)}
    if advantages is not None:
        changed["advantage"] = np.array(advantages)
    return columns(n, **changed)


def effect(*batches: Columns, policy: Policy = POLICY) -> WhatIfEffect:
    made = WhatIfEffect(policy)
    for found in batches:
        made.add(found, accepted=np.ones(found.n_sequences, bool))
    return made


def test_batches_add_up_and_stand_beside_what_was_decided() -> None:
    made = WhatIfEffect(POLICY)
    made.add(batch(lengths=[8, 8], sum_k3=[0.0, 2.0]), accepted=np.array([True, True]))
    made.add(batch(lengths=[8, 8], sum_k3=[2.0, 2.0]), accepted=np.array([False, True]))
    assert (made.total.n, made.total.mask_rate) == (4, 0.75)
    assert made.original.mask_rate == 0.25
    assert made.reasons == {"sum_k3": 3}


def test_merged_effects_are_those_of_all_batches_in_one() -> None:
    policy = Policy.parse(
        {"name": "t", "soft_tau": 1.0, "criteria": [{"statistic": "sum_k3", "pair": "total", "upper": 1.0}]}
    )
    batches = [
        batch(lengths=[8, 9], sum_k3=[0.0, 2.0], advantages=[1.0, -1.0]),
        reduced(mask=np.ones((2, 3)), rewards=[1.0, 0.0]),
        batch(lengths=[8, 300], sum_k3=[2.0, 2.0], advantages=[-1.0, 0.0]),
    ]
    merged = WhatIfEffect(policy)
    for one in batches:
        merged.merge(effect(one, policy=policy))
    assert merged == effect(*batches, policy=policy)
    assert (merged.total.rejected, merged.total.n, merged.weights and merged.weights.n) == (3, 4, 4)


def test_merged_ranges_cover_the_steps_of_both() -> None:
    merged, other = CoveredRange(), CoveredRange()
    for step, stored in ((4, True), (9, True), (2, False)):
        other.add(step, stored=stored)
    merged.add(7, stored=True)
    merged.merge(other)
    merged.merge(CoveredRange())
    assert merged == CoveredRange(first_step=4, last_step=9, n_steps=3, n_missing=1)


def test_turns_with_tokens_are_counted_and_those_of_a_batch_without_turns_are_undecided() -> None:
    turns = Policy.parse({"name": "t", "criteria": [], "turns": [{"statistic": "turn_max_abs_d", "upper": 0.5}]})
    logprobs = {"rollout_logprobs": np.full((2, 4), -1.0), "logprobs": np.array([[-1.0] * 3 + [-2.0], [-1.0] * 4])}
    traces = reduced(**logprobs, mask=np.ones((2, 4), bool), turn_offsets=[[0, 2], [0, 1, 9]])
    found = effect(traces, traces, batch(lengths=[8], sum_k3=[0.0]), policy=turns)
    assert (found.turns.n, found.turns.rejected, found.total.n) == (8, 2, 4)
    assert sum(found.undecided.values()) == 1


def test_a_batch_with_nothing_to_compare_is_undecided() -> None:
    only_rewards = reduced(mask=np.ones((2, 3)), rewards=[1.0, 0.0])
    assert sum(effect(only_rewards).undecided.values()) == 1
    assert effect(only_rewards).total.n == 0


def test_long_sequences_are_a_quarter_of_their_own() -> None:
    lengths = [10, 20, 30, 40, 50, 60, 70, 80]
    quarters = effect(batch(lengths=lengths, sum_k3=[0, 0, 0, 0, 0, 2, 2, 2])).quarters()
    assert [(q.shortest, q.longest) for q in quarters] == [(10, 20), (30, 40), (50, 60), (70, 80)]
    assert [q.share.mask_rate for q in quarters] == [0.0, 0.0, 0.5, 1.0]


def test_equal_lengths_stay_together() -> None:
    (quarter,) = effect(batch(lengths=[16] * 8, sum_k3=[2.0] * 8)).quarters()
    assert (quarter.shortest, quarter.longest, quarter.share.n) == (16, 16, 8)


def test_lengths_are_told_apart_to_three_digits() -> None:
    quarters = effect(batch(lengths=list(range(10_000, 10_020)), sum_k3=[0.0] * 20)).quarters()
    assert {quarter.shortest for quarter in quarters} == {10_000}


def test_the_sign_of_the_advantage_is_told_apart() -> None:
    made = effect(batch(lengths=[8] * 4, sum_k3=[2, 2, 0, 0], advantages=[1.0, -1.0, -2.0, 0.0]))
    assert (made.positive.n, made.positive.mask_rate) == (1, 1.0)
    assert (made.negative.n, made.negative.mask_rate) == (2, 0.5)


def test_empty_sequences_are_left_out_and_invalid_ones_are_rejected() -> None:
    found = batch(lengths=[0, 0, 8], sum_k3=[0.0, 0.0, 0.0])
    found.by_name["n_invalid"] = np.array([0, 3, 0])
    made = effect(found)
    assert (made.total.n, made.total.rejected) == (2, 1)
    assert made.reasons == {"invalid_logprobs": 1}


def test_reports_that_lack_what_the_policy_needs_are_counted_by_what_they_lack() -> None:
    policy = Policy("opsm", (Criterion("mean_k1", upper=0.1, where="advantage_negative"),))
    made = effect(batch(lengths=[8], sum_k3=[0.0]), policy=policy)
    assert made.total.n == 0
    assert math.isnan(made.total.mask_rate)
    assert made.quarters() == ()
    ((why, n),) = made.undecided.items()
    assert ("advantages" in why, n) == (True, 1)


def test_shares_of_tokens_add_up_over_reports_by_their_tokens() -> None:
    rollout = np.full((1, 4), -2.0)
    halves, ones = (
        reduced(rollout_logprobs=rollout, logprobs=rollout + np.array([moved]), mask=rollout < 0)
        for moved in ([0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    )
    (share,) = effect(halves, ones, policy=preset("tis")).tokens.values()
    assert share.n == 8
    assert [share.of(share.at_least), share.of(share.estimate), share.of(share.at_most)] == [0.75] * 3


def test_a_batch_without_a_token_has_no_share_of_them() -> None:
    none = reduced(rollout_logprobs=np.zeros((1, 2)), logprobs=np.zeros((1, 2)), mask=np.zeros((1, 2)))
    assert effect(none, policy=preset("tis")).tokens == {}


def test_a_soft_policy_adds_up_the_weights_of_its_sequences() -> None:
    soft = Policy("soft", POLICY.criteria, soft_tau=2.0)
    first, second = batch(lengths=[8, 8, 0], sum_k3=[0.0, 3.0, 9.0]), batch(lengths=[8], sum_k3=[1.5])
    made = effect(first, second, policy=soft)
    weights = [1.0, math.exp(-1.0), math.exp(-0.25)]
    assert made.weights.mean == pytest.approx(sum(weights) / 3)
    assert made.weights.effective_share == pytest.approx(sum(weights) ** 2 / (3 * sum(w * w for w in weights)))
    assert (made.total.n, made.total.rejected) == (3, 2)
    assert effect(first).weights is None


def test_weights_of_0_and_1_have_the_accepted_share_as_mean_and_as_effective_share() -> None:
    made = effect(batch(lengths=[8] * 4, sum_k3=[0.0, 2.0, 2.0, 0.5]), policy=replace(POLICY, soft_tau=1e-12))
    assert made.weights.mean == made.weights.effective_share == 1 - made.total.mask_rate == 0.5
    none = effect(batch(lengths=[8], sum_k3=[2.0]), policy=replace(POLICY, soft_tau=1e-12)).weights
    assert (none.mean, none.effective_share) == (0.0, 0.0)
    assert math.isnan(WeightTotal().effective_share)


def cut(*values: float, step: int = 0, lower: float | None = None, upper: float | None = 1.0) -> CriterionSample:
    return CriterionSample(step=step, values=np.array(values, float), lower=lower, upper=upper, n_rejected=0)


def test_every_sequence_is_counted_once() -> None:
    found = distribution([cut(0.0, 0.5, 2.0, math.inf, math.nan), cut(0.2, step=3, upper=0.5)])
    assert found.steps == (0, 3)
    assert found.counts.sum(axis=1).tolist() == [4, 1]
    assert found.n_unknown == (1, 0)
    assert found.upper == (1.0, 0.5)
    assert found.lower == (None, None)
    assert found.counts.shape == (2, BINS)
    assert found.counts[0, -1] >= 2


@pytest.mark.parametrize(
    ("values", "by_logarithms"),
    [
        pytest.param((1e-6, 1e-2, 3.0), True, id="orders of magnitude"),
        pytest.param((0.0, 1e-6, 1e-2), True, id="orders of magnitude, and zeros"),
        pytest.param((0.9, 1.1), False, id="ratios near one"),
        pytest.param((-0.5, 1e-6, 3.0), False, id="a signed statistic"),
    ],
)
def test_bins_are_spaced_as_the_values_are(values: tuple[float, ...], by_logarithms: bool) -> None:
    edges = distribution([cut(*values)]).edges
    gaps = np.diff(np.log(edges)) if by_logarithms else np.diff(edges)
    assert np.allclose(gaps, gaps[0])
    assert (edges > 0).all() or not by_logarithms


def test_the_bound_lies_within_the_edges_however_far_the_values_are() -> None:
    edges = distribution([cut(1e-5, 2e-5, upper=0.05)]).edges
    assert edges[0] <= 1e-5
    assert edges[-1] >= 0.05


@pytest.mark.parametrize("values", [(), (math.nan,), (0.0, 0.0)], ids=["none", "nan", "zeros"])
def test_values_that_show_nothing_have_a_distribution_all_the_same(values: tuple[float, ...]) -> None:
    found = distribution([cut(*values, upper=None)])
    assert (np.diff(found.edges) > 0).all()
    assert int(found.counts.sum()) == sum(not math.isnan(value) for value in values)


def test_the_telling_criterion_is_the_one_that_rejected_most() -> None:
    cuts = CriterionSamples()
    far = columns(4, total_sum_k3=np.array([9.0, 9.0, 0.0, 0.0]), total_max_k3=np.array([9, 9, 0, 0], "<f4"))
    cuts.add(columns(4), step=0, policy=preset("trm"))
    cuts.add(far, step=1, policy=preset("trm"))
    assert cuts.most_rejecting == ("mean_k3", "primary", "kl_not_exact")
    assert [found.n_rejected for found in cuts.by_criterion[cuts.most_rejecting]] == [0, 2]
    assert set(cuts.by_criterion) == {
        (name, "primary", "kl_not_exact") for name in ("max_binary_kl", "max_abs_d", "mean_k3")
    }


def test_ratios_are_told_in_their_own_units_and_empty_sequences_not_at_all() -> None:
    cuts = CriterionSamples()
    content = columns(
        2, mismatch_sum_d=np.array([0.0, 16 * math.log(2)]), n_tokens=np.array([16, 16]), n_invalid=np.array([0, 0])
    )
    cuts.add(content, step=0, policy=preset("geo_mask"))
    cuts.add(columns(1, n_tokens=np.array([0])), step=1, policy=preset("geo_mask"))
    first, second = cuts.by_criterion["geo_ratio", "mismatch_or_primary", None]
    assert np.allclose(first.values, [1.0, 2.0])
    assert len(second.values) == 0


def test_a_policy_that_lacks_what_it_needs_says_nothing() -> None:
    cuts = CriterionSamples()
    cuts.add(
        columns(2), step=0, policy=Policy.parse({"name": "lag", "criteria": [{"statistic": "version_lag", "upper": 2}]})
    )
    assert cuts.by_criterion == {}
    assert cuts.most_rejecting is None
