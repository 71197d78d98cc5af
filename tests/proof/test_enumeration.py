"""Signals equal the quantities that they estimate on a batch that holds each response in proportion to mu.

Over such a batch a mean is an expectation. The expected values are sums over the vocabulary at each context and do not
depend on the sampled tokens.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from tests.proof.models import Array, Language, Model, census, columns_of, countable_model, near
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.signals import batch_signals

SIZES = [(3, 3, 8), (4, 4, 8), (3, 6, 4)]
"""Vocabulary, horizon and the denominator of mu's probabilities: batches of 512, 4,096 and 4,096 responses."""


@dataclass(frozen=True)
class World:
    """Three policies and the signals of a batch that holds each response in proportion to mu."""

    mu: Model
    old: Model
    pi: Model
    parts: int

    @cached_property
    def batch(self) -> Array:
        """The indices of the responses in the batch."""
        return census(self.mu, parts=self.parts)

    @cached_property
    def signals(self) -> dict[str, float]:
        """The signals of the batch."""
        old = self.old.logprobs[self.batch]
        return batch_signals.compute(columns_of(self.batch, mu=self.mu, pi=self.pi, tv=True, old_logprobs=old))


def _world(size: tuple[int, int, int], stops: bool, truncates: bool) -> World:
    vocabulary, horizon, parts = size
    random = np.random.default_rng(0)
    language = Language(vocabulary, horizon, stops=stops)
    mu = countable_model(random, language, parts=parts, truncates=truncates)
    old = near(mu, random, noise=0.3)
    return World(mu, old, near(old, random, noise=0.5), parts)


def _name(size: tuple[int, int, int], stops: bool, truncates: bool) -> str:
    return f"V={size[0]} T={size[1]}{' stops' if stops else ''}{' truncated' if truncates else ''}"


CASES = list(itertools.product(SIZES, (False, True), (False, True)))
WORLDS = [pytest.param(_world(*case), id=_name(*case)) for case in CASES]
every_world = pytest.mark.parametrize("world", WORLDS)


def exactly(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-12)


def kl(p: Model, q: Model) -> Array:
    """Return KL(p||q) at each context, [N, T]; the support of q contains the support of p."""
    weights = p.conditionals
    return (weights * np.log(np.where(weights > 0, weights, 1.0) / np.where(weights > 0, q.conditionals, 1.0))).sum(-1)


def tv(p: Model, q: Model) -> Array:
    return np.abs(p.conditionals - q.conditionals).sum(-1) / 2


@every_world
def test_the_batch_holds_each_response_in_proportion_to_mu(world: World) -> None:
    counts = np.bincount(world.batch, minlength=len(world.mu.responses))
    np.testing.assert_allclose(counts / counts.sum(), world.mu.responses, rtol=1e-12)
    assert world.signals["response_length_mean"] == exactly(
        (world.mu.responses * world.mu.language.mask.sum(axis=1)).sum()
    )


@every_world
def test_means_over_tokens_estimate_divergences_of_their_distributions(world: World) -> None:
    """k3 lacks the mass of pi outside the support of mu; the deficit is the total variation for any supports."""
    mu, old, pi = world.mu, world.old, world.pi
    p, q = mu.conditionals, pi.conditionals
    on_support = np.where(p > 0, q, 0.0).sum(-1)
    expected = {
        "mismatch_kl_k1": kl(mu, old),
        "total_kl_k1": kl(mu, pi),
        "total_kl_k3": kl(mu, pi) - (1 - on_support),
        "total_ratio_mean": on_support,
        "mismatch_tv": tv(mu, old),
        "total_tv": tv(mu, pi),
        "total_chi2_token": np.where(p > 0, q**2 / np.where(p > 0, p, 1.0), 0.0).sum(-1) - 1,
    }
    for name, of_context in expected.items():
        assert world.signals[name] == exactly(mu.expected(of_context)), name


@every_world
def test_sequence_signals_estimate_divergences_of_the_response_distributions(world: World) -> None:
    p, q = (model.responses[world.mu.responses > 0] for model in (world.mu, world.pi))
    chi2 = (q**2 / p).sum() - 1
    assert world.signals["total_chi2_seq"] == exactly(chi2)
    assert world.signals["total_ess_seq"] == exactly(q.sum() ** 2 / (1 + chi2))
    assert -world.signals["total_seq_log_ratio_mean"] == exactly((p * np.log(p / q)).sum())


@every_world
def test_exact_divergences_of_contexts_add_up_to_those_of_responses(world: World) -> None:
    """The chain rule: the KL of two distributions of responses is the expected sum of the KL at their tokens."""
    p, q = (model.responses[world.mu.responses > 0] for model in (world.mu, world.pi))
    assert world.signals["kl_seq"] == exactly((p * np.log(p / q)).sum())
    assert world.signals["kl_mean"] == exactly(world.mu.expected(kl(world.mu, world.pi)))
    reached = world.mu.language.mask & (world.mu.responses > 0)[:, None]
    assert world.signals["kl_max"] == pytest.approx(kl(world.mu, world.pi)[reached].max(), rel=1e-6)
    assert world.signals["tv_max"] == pytest.approx(tv(world.mu, world.pi)[reached].max(), rel=1e-6)


@every_world
def test_weighting_with_both_ratios_estimates_staleness_without_bias(world: World) -> None:
    """Tokens are sampled from mu and not from pi_old, so a mean of |pi - pi_old| must be weighted."""
    off = np.where(world.mu.conditionals > 0, 0.0, np.abs(world.pi.conditionals - world.old.conditionals)).sum(-1) / 2
    expected = world.mu.expected(tv(world.old, world.pi) - off)
    assert world.signals["staleness_tv_is"] == exactly(expected)
    assert world.signals["staleness_tv"] != pytest.approx(world.mu.expected(tv(world.old, world.pi)), rel=1e-4)


@every_world
def test_masking_tokens_does_not_change_the_largest_kl(world: World) -> None:
    """KL depends on the context and not on the sampled token, so dropping tokens changes no policy.

    Every context has tokens with a ratio above 1 and others below 1, because both policies sum to 1. A rule that drops
    tokens on one side leaves tokens with the same KL on the other. Source: [TRM] proposition 4.1.
    """
    mu = near(world.mu, np.random.default_rng(0), noise=0.1)
    logits = {"rollout_logits": mu.logits, "logits": world.pi.logits}
    ratios = world.pi.chosen / mu.chosen
    whole = divergence_columns.exact(**logits, mask=mu.language.mask)
    for kept in (ratios <= 1, ratios >= 1):
        masked = divergence_columns.exact(**logits, mask=mu.language.mask & kept)
        assert masked["sum_kl"].sum() < whole["sum_kl"].sum()
        assert masked["max_kl"].max() == whole["max_kl"].max()
