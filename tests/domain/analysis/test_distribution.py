"""Where sequences stood against a bound: bins that show both tails, and the bound in force at each step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.fixtures.messages import columns
from trmon.domain.analysis.distribution import BINS, CriterionSample, CriterionSamples, distribution
from trmon_client.core.policies.policy import Policy, preset


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
