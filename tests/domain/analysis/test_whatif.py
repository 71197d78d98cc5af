"""What another policy would have masked: by reason, by length, by the sign of the advantage."""

from __future__ import annotations

import math

import numpy as np

from tests.fixtures.messages import columns
from trmon.domain.analysis.whatif import WhatIfEffect
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.criterion import Criterion
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
