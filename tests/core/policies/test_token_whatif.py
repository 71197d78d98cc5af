"""The effect of token rules estimated from the histogram, against the tokens themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.batches import batch
from trmon_client.core import statistics
from trmon_client.core.column_schema import N_BINS
from trmon_client.core.columns import Columns
from trmon_client.core.histogram import EDGES, histograms
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.criteria import TokenRule
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.presets import TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_whatif import TokenFraction, affected_fractions, fraction_outside, kept_range


def counts_of(d: np.ndarray) -> np.ndarray:
    return histograms(d[None].astype(float), valid=np.ones(len(d), bool))[0]


@settings(max_examples=60)
@given(
    st.lists(st.floats(-40, 40), min_size=1, max_size=40),
    st.tuples(st.floats(-35, 35) | st.sampled_from(EDGES), st.floats(-35, 35) | st.sampled_from(EDGES)),
)
def test_the_fraction_outside_lies_between_its_limits(d: list[float], bounds: tuple[float, float]) -> None:
    lower, upper = sorted(map(float, bounds))
    found = fraction_outside(counts_of(np.array(d)), lower=lower, upper=upper)
    true = np.mean((np.array(d) < lower) | (np.array(d) > upper))
    assert found.at_least - 1e-12 <= true <= found.at_most + 1e-12
    assert found.at_least - 1e-12 <= found.estimate <= found.at_most + 1e-12


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_the_estimate_for_many_tokens_is_close(scale: float) -> None:
    d = np.random.default_rng(3).normal(0, scale, 50_000)
    for bound in (0.5 * scale, 3 * scale):
        found = fraction_outside(counts_of(d), lower=-bound, upper=bound).estimate
        assert found == pytest.approx(np.mean(np.abs(d) > bound), rel=0.02, abs=2e-3)


def test_bounds_on_edges_count_exactly_except_tokens_on_the_upper_edge() -> None:
    lower, upper = float(EDGES[20]), float(EDGES[-20])
    d = np.array([lower * 1.01, lower, 0.0, upper * 0.99, upper * 1.5])
    assert fraction_outside(counts_of(d), lower=lower) == TokenFraction(0.2, 0.2, 0.4)
    assert fraction_outside(counts_of(d), upper=upper) == TokenFraction(0.2, 0.2, 0.2)


def test_the_fraction_is_zero_without_bounds_and_nan_without_tokens() -> None:
    assert fraction_outside(counts_of(np.array([1.0, -2.0]))) == TokenFraction(0.0, 0.0, 0.0)
    assert math.isnan(fraction_outside(np.zeros(N_BINS, int)).estimate)
    with pytest.raises(ValueError, match=r"lower must be at most upper, got 1\.0 and 0\.0"):
        fraction_outside(np.ones(N_BINS, int), lower=1.0, upper=0.0)


@pytest.mark.parametrize("upper", [1e-12, 1e-6, 0.01, 1.0, 100.0, 1e6])
def test_the_ends_of_the_k3_range_have_the_k3_of_the_bound(upper: float) -> None:
    lower_d, upper_d = kept_range(TokenRule("token_k3", upper=upper))
    assert lower_d < 0 < upper_d
    for d in (lower_d, upper_d):
        exact = math.expm1(d) - d if abs(d) > 0.1 else math.fsum(d**n / math.factorial(n) for n in range(2, 15))
        assert exact == pytest.approx(upper, rel=1e-3 if upper < 1e-9 else 1e-6)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (TokenRule("icepop", lower=0.5, upper=5.0), (math.log(0.5), math.log(5))),
        (TokenRule("token_k2", upper=0.02), (-0.2, 0.2)),
        (TokenRule("tis", upper=2.0), (-math.inf, math.log(2))),
    ],
)
def test_the_kept_range_of_a_rule_follows_from_its_bounds(rule: TokenRule, expected: tuple[float, float]) -> None:
    assert kept_range(rule) == pytest.approx(expected)
    with pytest.raises(ValueError, match="seq_tis has no range"):
        kept_range(TokenRule("seq_tis", upper=2.0))


@pytest.mark.parametrize("name", [name for name, rule in TOKEN_POLICIES.items() if not rule.kind.by_advantage])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 1.0])
def test_the_estimate_contains_the_true_effect_of_the_policy(name: str, noise: float) -> None:
    inputs = batch(seed=5, n_sequences=40, noise=noise, odd=0.02)
    columns = statistics.columns(**inputs)
    applied = token_decision.apply_token_rules(preset(name), **inputs).columns
    true = (applied["n_token_masked"].sum() + applied["n_token_truncated"].sum()) / columns["n_tokens"].sum()
    (found,) = affected_fractions(columns, preset(name)).values()
    assert found.at_least - 1e-9 <= true <= found.at_most + 1e-9
    if name == "seq_tis":
        assert found.estimate == pytest.approx(true)


def test_a_missing_histogram_raises() -> None:
    columns = Columns(statistics.columns(**batch(0)).by_name)
    with pytest.raises(PolicyError, match="icepop needs the histogram of mismatch"):
        affected_fractions(columns, preset("icepop"))
    assert affected_fractions(columns, preset("trm")) == {}


@pytest.mark.parametrize("name", ["dppo", "dppo_kl"])
def test_a_rule_that_reads_what_is_not_stored_is_refused_with_the_reason(name: str) -> None:
    given = batch(0)
    columns = statistics.columns(**given, advantages=np.ones(len(given["mask"])))
    with pytest.raises(PolicyError, match=f"{name} reads the advantage and probability of each token, which are not"):
        affected_fractions(columns, preset(name))


def test_the_weights_of_gspo_are_not_truncated_and_two_sided_mis_masks_below_its_lower_bound() -> None:
    given = batch(seed=5, n_sequences=40, noise=0.3)
    columns = statistics.columns(**given, advantages=np.ones(40))
    assert affected_fractions(columns, preset("gspo")) == {"gspo": TokenFraction(0.0, 0.0, 0.0)}
    (found,) = affected_fractions(columns, preset("seq_mis_two_sided")).values()
    applied = token_decision.apply_token_rules(preset("seq_mis_two_sided"), **given).columns["n_token_masked"]
    assert found.estimate == pytest.approx(applied.sum() / columns["n_tokens"].sum())
    (one_sided,) = affected_fractions(columns, preset("seq_mis")).values()
    assert 0 < one_sided.estimate < found.estimate
