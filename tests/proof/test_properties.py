"""Laws of columns, signals and decisions on random batches, of looser bounds, and of certified lower bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.examples import POISON, batch, with_kl
from tests.core.softmaxes import Pair
from tests.proof.models import Array
from trmon_client.core import statistics
from trmon_client.core.bounds import error_bounds
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.inputs.checked_inputs import valid_mask
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
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


BOUND_NAMES = ("trpo", "pinsker_marginal", "mixed", "adaptive")

drawn = {
    "seed": st.integers(0, 10**6),
    "noise": st.sampled_from([1e-3, 0.01, 0.1, 1.0]),
    "odd": st.sampled_from([0.0, 0.0, 0.02]),
}
slacks = st.floats(1e-4, 4.0)
"""The distance of a bound from the value that accepts only equal policies."""


def columns_of(seed: int, *, noise: float, odd: float, kl_is: str = "sampled") -> Columns:
    """Return columns of ten sequences, with a KL from logits unless it is only sampled."""
    random = np.random.default_rng(seed)
    labels = {"advantages": random.normal(size=10), "versions": random.integers(-1, 1, 10), "trainer_version": 0}
    columns = statistics.columns(**batch(seed, n_sequences=10, noise=noise, odd=odd), **labels)
    if kl_is == "sampled":
        return columns
    return with_kl(columns, (columns["total_max_k3"] + 1e-3).tolist(), kl_is=kl_is)


def at_slack(name: str, slack: float) -> Policy:
    """Return a preset whose bounds have this distance from the value of equal policies.

    A calibrated preset takes no bounds: a trainer receives it with plain ones, as here.
    """
    if name in PRESETS and PRESETS[name].takes == ("delta",):
        return preset(name, delta=slack)
    if name in PRESETS and PRESETS[name].is_calibrated:
        bounded = tuple(replace(criterion, upper=slack) for criterion in preset(name).criteria)
        return replace(preset(name), criteria=bounded, calibrate=None)
    rule: Any = (preset(name).criteria or preset(name).tokens)[0]
    is_ratio = rule.measured.is_ratio if isinstance(rule, Criterion) else rule.kind.is_ratio
    least, most = (1 / (1 + slack), 1 + slack) if is_ratio else (-slack, slack)
    given = {"lower": None if rule.lower is None else least, "upper": None if rule.upper is None else most}
    return preset(name, **given)


@pytest.mark.parametrize("kl_is", ["sampled", "lower_bound", "exact"])
@pytest.mark.parametrize("name", PRESETS)
@settings(LAW, max_examples=10)
@given(**drawn, slack=slacks, more=slacks)
def test_a_looser_bound_accepts_whatever_a_tighter_one_accepts(
    name: str, kl_is: str, seed: int, noise: float, odd: float, slack: float, more: float
) -> None:
    columns = columns_of(seed, noise=noise, odd=odd, kl_is=kl_is)
    tight, loose = (decide(columns, at_slack(name, bound)) for bound in (slack, slack + more))
    assert (loose.accepted >= tight.accepted).all()
    assert (loose.certified <= tight.certified).all()
    assert not tight.mask_rate < loose.mask_rate


@pytest.mark.parametrize("name", PRESETS)
def test_the_bound_of_every_preset_has_an_effect(name: str) -> None:
    """This shows that the law above is not vacuous."""
    columns = columns_of(3, noise=1e-3, odd=0.0, kl_is="exact")
    tight, loose = (decide(columns, at_slack(name, slack)) for slack in (1e-9, 1.0))
    assert loose.accepted.all()
    assert tight.accepted.sum() < loose.accepted.sum()


@pytest.mark.parametrize("name", TOKEN_POLICIES)
@settings(LAW, max_examples=15)
@given(**drawn, slack=slacks, more=slacks)
def test_a_looser_token_rule_never_keeps_fewer_tokens_or_lowers_weights(
    name: str, seed: int, noise: float, odd: float, slack: float, more: float
) -> None:
    inputs = batch(seed, noise=noise, odd=odd) | {"advantages": np.random.default_rng(seed).normal(size=6)}
    tight, loose = (
        token_decision.apply_token_rules(at_slack(name, bound), **inputs) for bound in (slack, slack + more)
    )
    assert (loose.mask >= tight.mask).all()
    assert (loose.weights >= tight.weights).all()


horizons = st.integers(1, 100_000)
kls = st.floats(0, 10)
factors = st.floats(1, 10)


@LAW
@given(horizons, kls, kls, st.floats(0.1, 10), factors, st.integers(0, 1000))
def test_every_error_bound_grows_with_each_argument(
    horizon: int, kl_max: float, kl_seq: float, reward_range: float, factor: float, longer: int
) -> None:
    base: dict[str, Any] = {"horizon": horizon, "kl_max": kl_max, "kl_seq": kl_seq, "reward_range": reward_range}
    grown = {name: value * factor for name, value in base.items()} | {"horizon": horizon + longer}
    before = error_bounds(**base)
    for name in base:
        after = error_bounds(**{**base, name: grown[name]})
        for kind in BOUND_NAMES:
            assert getattr(after, kind) >= getattr(before, kind), (name, kind)


N_SEQUENCES, HORIZON = 6, 5
FLOAT32_ROUNDING = 5e-6
"""The error of float32 log-probs in nats; the margin of a certificate is twenty times as large."""


class Sampled(Pair):
    """Tokens sampled from mu's softmax, with float32 log-probs as engines return them; -inf outside a support."""

    @cached_property
    def given(self) -> dict[str, Array]:
        """The log-probs of the sampled tokens."""
        logprobs = {"rollout_logprobs": self.rollout_logprobs, "logprobs": self.logprobs}
        return {name: array.astype(np.float32) for name, array in logprobs.items()}

    @cached_property
    def valid(self) -> Array:
        """The positions with valid log-probs, which are not -inf."""
        return valid_mask(mask=self.mask, **self.given)

    @cached_property
    def columns(self) -> Columns:
        return statistics.columns(**self.given, mask=self.mask)

    @cached_property
    def exact(self) -> Columns:
        logits = {"rollout_logits": self.rollout_logits, "logits": self.logits}
        return divergence_columns.exact(**logits, mask=self.valid, tv=True)

    def bounds_from(self, k: int) -> Columns:
        """Return the bounds from the k most likely tokens of the rollout engine."""
        ids, logprobs = self.topk(k)
        return divergence_columns.topk_lower_bound(
            topk_ids=ids,
            topk_logprobs=logprobs.astype(np.float32),
            rollout_logprobs=self.given["rollout_logprobs"],
            logits=self.logits,
            token_ids=self.token_ids,
            mask=self.valid,
        )


def _sampled(seed: int, vocabulary: int, sharpness: float, noise: float, cuts: str) -> Sampled:
    random = np.random.default_rng(seed)
    shape = (N_SEQUENCES, HORIZON, vocabulary)
    a = sharpness * random.normal(size=shape)
    b = a + noise * random.normal(size=shape)
    for name, logits in (("rollout", a), ("trainer", b)):
        if name in cuts:
            lowest = np.argsort(logits, axis=-1)[..., : vocabulary // 2]
            np.put_along_axis(logits, lowest, -np.inf, -1)
    gumbel = -np.log(random.exponential(size=shape))
    return Sampled(a, b, (a + gumbel).argmax(-1), np.ones(shape[:2], bool))


logits_drawn = {
    "seed": st.integers(0, 10**6),
    "noise": st.sampled_from([0.0, 1e-4, 1e-2, 0.3, 2.0, 10.0]),
    "cuts": st.sampled_from(["none", "rollout", "trainer", "rollout and trainer"]),
}
samples = st.builds(
    _sampled,
    vocabulary=st.sampled_from([2, 3, 8, 64, 500]),
    sharpness=st.sampled_from([0.0, 0.5, 2.0, 6.0, 30.0]),
    **logits_drawn,
)
high_entropy = st.builds(
    _sampled, vocabulary=st.sampled_from([64, 500]), sharpness=st.sampled_from([0.0, 1.0]), **logits_drawn
)
"""Distributions whose rest has more mass than float32 rounding; otherwise the bound loses some of its value."""


@LAW
@given(samples)
def test_the_binary_kl_of_sampled_tokens_never_exceeds_the_exact_kl(sampled: Sampled) -> None:
    found = sampled.columns
    rows = found["n_tokens"] > 0
    assert np.isfinite(found["total_sum_binary_kl"]).all()
    assert (found["total_max_binary_kl"][rows] <= sampled.exact["max_kl"][rows] + FLOAT32_ROUNDING).all()
    assert (found["total_sum_binary_kl"] <= sampled.exact["sum_kl"] + HORIZON * FLOAT32_ROUNDING).all()


@LAW
@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 2.0))
def test_the_binary_kl_of_two_tokens_is_the_exact_kl(seed: int, noise: float) -> None:
    sampled = _sampled(seed, vocabulary=2, sharpness=1.0, noise=noise, cuts="none")
    np.testing.assert_allclose(
        sampled.columns["total_sum_binary_kl"], sampled.exact["sum_kl"], atol=HORIZON * FLOAT32_ROUNDING
    )


@LAW
@given(samples, st.sampled_from([1, 2, 5, 20]))
def test_the_bound_from_the_top_k_never_exceeds_the_exact_kl(sampled: Sampled, k: int) -> None:
    found = sampled.bounds_from(k)
    assume(found.kl_is == "lower_bound")
    rows = found["n_tokens"] > 0
    assert (found["max_kl"][rows] <= sampled.exact["max_kl"][rows] + FLOAT32_ROUNDING).all()
    assert (found["sum_kl"] <= sampled.exact["sum_kl"] + HORIZON * FLOAT32_ROUNDING).all()
    assert (found["n_unbounded"] <= sampled.exact["n_unbounded"]).all()


@LAW
@given(high_entropy, st.sampled_from([1, 2, 5, 10]))
def test_a_larger_k_never_weakens_the_bound(sampled: Sampled, k: int) -> None:
    sampled_alone = sampled.columns["total_sum_binary_kl"]
    few, more = (sampled.bounds_from(n)["sum_kl"] for n in (k, 2 * k))
    assert (sampled_alone <= few + HORIZON * FLOAT32_ROUNDING).all()
    assert (few <= more + HORIZON * FLOAT32_ROUNDING).all()


@LAW
@given(samples)
def test_the_difference_of_sampled_probabilities_never_exceeds_total_variation(sampled: Sampled) -> None:
    """The difference bounds an alpha of [3P]."""
    rows = sampled.columns["n_tokens"] > 0
    gap, tv = sampled.columns["total_max_prob_diff"][rows], sampled.exact["max_tv"][rows]
    assert (gap <= tv + FLOAT32_ROUNDING).all()


@LAW
@given(samples, st.floats(1e-6, 1.0), st.sampled_from([None, 1, 5]))
def test_a_certified_rejection_is_never_wrong(sampled: Sampled, delta: float, k: int | None) -> None:
    columns = (
        sampled.columns if k is None else divergence_columns.with_divergences(sampled.columns, sampled.bounds_from(k))
    )
    certified = decide(columns, preset("trm_max", delta=delta)).certified
    assert (sampled.exact["max_kl"][certified] > delta).all()


@LAW
@given(seed=st.integers(0, 10**6), noise=st.floats(0.01, 2.0))
def test_rounding_certifies_nothing_where_the_bound_equals_the_exact_kl(seed: int, noise: float) -> None:
    sampled = _sampled(seed, vocabulary=2, sharpness=1.0, noise=noise, cuts="none")
    policy = preset("trm_max", delta=float(sampled.exact["max_kl"].max()))
    assert not decide(sampled.columns, policy).certified.any()


def test_typical_distributions_give_bounds() -> None:
    """This shows that the laws above are not vacuous."""
    typical = [_sampled(seed, 64, 2.0, noise, "none") for seed in range(5) for noise in (0.3, 2.0)]
    for sampled in typical:
        assert sampled.bounds_from(5).kl_is == "lower_bound"
        share = sampled.bounds_from(20)["sum_kl"].sum() / sampled.exact["sum_kl"].sum()
        assert 0.3 < share <= 1.0
