"""Certified lower bounds never exceed the exact KL, are never falsely infinite and never certify wrongly.

Distributions range from flat to nearly deterministic, with full and truncated supports, and trainers from equal to
unrelated; log-probs are float32, as engines return them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.softmaxes import Pair
from tests.proof.models import Array
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.inputs.checked_inputs import valid_mask
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset

LAW = settings(max_examples=40, derandomize=True)
N_SEQUENCES, HORIZON = 6, 5
ROUNDING = 5e-6
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


drawn = {
    "seed": st.integers(0, 10**6),
    "noise": st.sampled_from([0.0, 1e-4, 1e-2, 0.3, 2.0, 10.0]),
    "cuts": st.sampled_from(["none", "rollout", "trainer", "rollout and trainer"]),
}
samples = st.builds(
    _sampled,
    vocabulary=st.sampled_from([2, 3, 8, 64, 500]),
    sharpness=st.sampled_from([0.0, 0.5, 2.0, 6.0, 30.0]),
    **drawn,
)
high_entropy = st.builds(
    _sampled, vocabulary=st.sampled_from([64, 500]), sharpness=st.sampled_from([0.0, 1.0]), **drawn
)
"""Distributions whose rest has more mass than float32 rounding; otherwise the bound loses some of its value."""


@LAW
@given(samples)
def test_the_binary_kl_of_sampled_tokens_never_exceeds_the_exact_kl(sampled: Sampled) -> None:
    found = sampled.columns
    rows = found["n_tokens"] > 0
    assert np.isfinite(found["total_sum_binary_kl"]).all()
    assert (found["total_max_binary_kl"][rows] <= sampled.exact["max_kl"][rows] + ROUNDING).all()
    assert (found["total_sum_binary_kl"] <= sampled.exact["sum_kl"] + HORIZON * ROUNDING).all()


@LAW
@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 2.0))
def test_the_binary_kl_of_two_tokens_is_the_exact_kl(seed: int, noise: float) -> None:
    sampled = _sampled(seed, vocabulary=2, sharpness=1.0, noise=noise, cuts="none")
    np.testing.assert_allclose(sampled.columns["total_sum_binary_kl"], sampled.exact["sum_kl"], atol=HORIZON * ROUNDING)


@LAW
@given(samples, st.sampled_from([1, 2, 5, 20]))
def test_the_bound_from_the_top_k_never_exceeds_the_exact_kl(sampled: Sampled, k: int) -> None:
    found = sampled.bounds_from(k)
    assume(found.kl_is == "lower_bound")
    rows = found["n_tokens"] > 0
    assert (found["max_kl"][rows] <= sampled.exact["max_kl"][rows] + ROUNDING).all()
    assert (found["sum_kl"] <= sampled.exact["sum_kl"] + HORIZON * ROUNDING).all()
    assert (found["n_unbounded"] <= sampled.exact["n_unbounded"]).all()


@LAW
@given(high_entropy, st.sampled_from([1, 2, 5, 10]))
def test_a_larger_k_never_weakens_the_bound(sampled: Sampled, k: int) -> None:
    sampled_alone = sampled.columns["total_sum_binary_kl"]
    few, more = (sampled.bounds_from(n)["sum_kl"] for n in (k, 2 * k))
    assert (sampled_alone <= few + HORIZON * ROUNDING).all()
    assert (few <= more + HORIZON * ROUNDING).all()


@LAW
@given(samples)
def test_the_difference_of_sampled_probabilities_never_exceeds_total_variation(sampled: Sampled) -> None:
    """The difference bounds an alpha of [3P]."""
    rows = sampled.columns["n_tokens"] > 0
    gap, tv = sampled.columns["total_max_prob_diff"][rows], sampled.exact["max_tv"][rows]
    assert (gap <= tv + ROUNDING).all()


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
