"""Laws of columns, signals and decisions on random batches, from tokens to decisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.batches import POISON, batch
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.presets import PRESETS
from trmon_client.core.signals import batch_signals

LAW = settings(max_examples=30, derandomize=True)
PER_TOKEN = ("rollout_logprobs", "old_logprobs", "logprobs", "mask", "advantages", "versions")

batches = st.builds(
    lambda seed, **drawn: _with_labels(batch(seed, **drawn), seed),
    seed=st.integers(0, 10**6),
    n_sequences=st.integers(1, 9),
    horizon=st.sampled_from([1, 2, 7, 40, 300]),
    noise=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0]),
    odd=st.sampled_from([0.0, 0.0, 0.05, 0.4]),
)
"""Arguments of `statistics.columns`: three policies from equal to unrelated, healthy and poisoned log-probs."""

REGRESSED = ("logp_slope_q", "logp_slope_p", "logp_corr_q", "temperature_near", "temperature_far")
"""Signals of covariances: policies that differ by 1e-6 leave few digits of a difference of sums of squares."""
SQUARED = ("chi2_token_sn",)
"""Sums of squared ratios of up to e^40: few of the digits of the smaller ones are left."""
CORRELATED = "logp_corr_q"
"""Between -1 and 1: where log-ratios and log-probs are unrelated, it is next to 0, and its digits are rounding."""


def _with_labels(inputs: dict[str, Any], seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    n = len(inputs["mask"])
    return {
        **inputs,
        "advantages": random.normal(size=inputs["mask"].shape),
        "versions": random.integers(0, 9, inputs["mask"].shape),
        "rewards": random.integers(0, 2, n).astype(float),
        "group_ids": random.integers(0, 3, n),
        "trainer_version": 9,
    }


def rows(inputs: dict[str, Any], index: Any) -> dict[str, Any]:
    """Return the arguments of some of the sequences."""
    return {name: value if name == "trainer_version" else value[index] for name, value in inputs.items()}


def assert_same(found: Columns, expected: Columns) -> None:
    """Compare columns, histograms, signals and decisions up to the order of summation."""
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=name)
    assert_same_measures(found, expected)
    for name in PRESETS:
        first, second = decide(found, preset(name)), decide(expected, preset(name))
        assert first.reasons == second.reasons, name
        np.testing.assert_array_equal(first.certified, second.certified)


def assert_same_measures(found: Columns, expected: Columns) -> None:
    for pair in expected.pairs:
        np.testing.assert_array_equal(found.histograms[pair], expected.histograms[pair])
    measured, wanted = batch_signals.compute(found), batch_signals.compute(expected)
    assert measured.keys() == wanted.keys()
    for name, value in wanted.items():
        relative = 1e-6 if name.endswith((*REGRESSED, *SQUARED)) else 1e-9
        least = 1e-7 if name.endswith(CORRELATED) else 1e-12
        assert measured[name] == pytest.approx(value, rel=relative, abs=least, nan_ok=True), name


@LAW
@given(batches, st.lists(st.integers(0, 9), max_size=4))
def test_merged_parts_are_the_whole(inputs: dict[str, Any], cuts: list[int]) -> None:
    n = len(inputs["mask"])
    ends = [0, *sorted(min(cut, n) for cut in cuts), n]
    parts = [rows(inputs, slice(*ends[i : i + 2])) for i in range(len(ends) - 1)]
    assert_same(Columns.merge(*(statistics.columns(**part) for part in parts)), statistics.columns(**inputs))


@LAW
@given(batches, st.randoms(use_true_random=False))
def test_the_order_of_sequences_does_not_matter(inputs: dict[str, Any], random: Any) -> None:
    order = list(range(len(inputs["mask"])))
    random.shuffle(order)
    straight, shuffled = statistics.columns(**inputs), statistics.columns(**rows(inputs, order))
    assert_same(
        shuffled,
        Columns({name: array[order] for name, array in straight.items()}, straight.histograms, trainer_version=9),
    )
    assert_same_measures(shuffled, straight)


@LAW
@given(batches, st.floats(0, 1), st.integers(1, 300), st.sampled_from([0.0, -1.0, *POISON]))
def test_padding_does_not_matter_at_any_position_and_with_any_value(
    inputs: dict[str, Any], place: float, width: int, value: float
) -> None:
    at = round(place * inputs["mask"].shape[1])
    fill = dict.fromkeys(PER_TOKEN, value) | {"mask": False, "versions": -5}
    wide = {name: np.insert(inputs[name], [at] * width, fill[name], axis=1) for name in PER_TOKEN}
    plain, padded = statistics.columns(**inputs), statistics.columns(**{**inputs, **wide})
    moved = padded["argmax_abs_d"] - width * (padded["argmax_abs_d"] >= at)
    assert_same(Columns({**padded, "argmax_abs_d": moved}, padded.histograms, trainer_version=9), plain)


RANGES = {
    **dict.fromkeys(("kl_k2", "kl_k3", "chi2_token_sn", "is_weight_std", "binary_kl_mean"), (0.0, math.inf)),
    **dict.fromkeys(("tv", "tv_seq_max", "prob_diff_mean", "prob_diff_max"), (0.0, 1.0)),
    **dict.fromkeys(("band_fraction", "trunc_fraction"), (0.0, 1.0)),
    **dict.fromkeys(("ess_token", "ess_seq", "ess_truncated"), (math.ulp(0.0), 1.0)),
    "ratio_mean": (math.ulp(0.0), math.inf),
    "prob_pearson": (-1.0, 1.0),
}
ROUNDING = 1e-12


@LAW
@given(batches)
def test_signals_stay_in_their_ranges_and_are_nan_only_without_a_token(inputs: dict[str, Any]) -> None:
    columns = statistics.columns(**inputs)
    found = batch_signals.compute(columns)
    for pair in columns.pairs:
        for stem, (least, most) in RANGES.items():
            value = found[f"{pair}_{stem}"]
            if math.isnan(value):
                assert stem == "prob_pearson" or columns["n_tokens"].sum() == 0
            else:
                assert least <= value <= most + ROUNDING, (pair, stem)


@LAW
@given(batches)
def test_estimators_satisfy_their_inequalities(inputs: dict[str, Any]) -> None:
    columns = statistics.columns(**inputs)
    has_tokens = columns["n_tokens"] > 0
    for pair in columns.pairs:
        stems = ("k3", "abs_d", "ratio_dev", "ratio_deficit")
        k3, abs_d, dev, deficit = (columns[f"{pair}_sum_{stem}"] for stem in stems)
        assert (k3 >= 0).all()
        assert (deficit <= abs_d + ROUNDING).all()
        assert (-dev <= deficit + ROUNDING).all()
        assert (columns[f"{pair}_n_trunc"] >= columns[f"{pair}_n_band_high"]).all()
        assert (columns[f"{pair}_max_k3"] <= k3 * (1 + 1e-6))[has_tokens].all()


logits = st.builds(
    lambda seed, v, sharp, noise: _two_logits(np.random.default_rng(seed), v, sharp, noise),
    st.integers(0, 10**6),
    st.sampled_from([2, 3, 17, 300]),
    st.sampled_from([0.1, 1.0, 6.0, 30.0]),
    st.sampled_from([0.0, 1e-4, 0.1, 1.0, 20.0]),
)


def _two_logits(random: np.random.Generator, v: int, sharp: float, noise: float) -> tuple[Any, Any]:
    a = sharp * random.normal(size=(16, 1, v))
    return a, a + noise * random.normal(size=a.shape)


@LAW
@given(logits)
def test_exact_divergences_satisfy_pinsker_in_both_directions(two: tuple[Any, Any]) -> None:
    found = divergence_columns.exact(rollout_logits=two[0], logits=two[1], mask=np.ones((16, 1)), tv=True)
    tv = found["sum_tv"]
    assert ((tv >= 0) & (tv <= 1 + ROUNDING)).all()
    assert (tv**2 <= found["sum_kl"] / 2 + ROUNDING).all()
    assert (tv**2 <= found["sum_reverse_kl"] / 2 + ROUNDING).all()
