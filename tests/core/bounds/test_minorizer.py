"""The minorizer against the true gain of small policies, whose every response is enumerated."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from trmon_client.core import divergence, statistics
from trmon_client.core.bounds import batch_bounds, minorizer, surrogate
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences

QUARTERS = 4
RESPONSES = tuple(product((0, 1), repeat=2))


def policy(
    rng: np.random.Generator, *, near: dict[tuple[int, ...], float] | None = None
) -> dict[tuple[int, ...], float]:
    """Return the probability of token 1 after each beginning; quarters, or those of another policy moved a little."""
    if near is None:
        return {start: rng.integers(1, QUARTERS) / QUARTERS for start in ((), (0,), (1,))}
    size = 10.0 ** rng.uniform(-4, -0.3)
    return {start: float(np.clip(p + size * rng.uniform(-1, 1), 0.01, 0.99)) for start, p in near.items()}


def logits(probabilities: dict[tuple[int, ...], float], response: tuple[int, ...]) -> np.ndarray:
    shares = np.array([[1 - probabilities[response[:t]], probabilities[response[:t]]] for t in range(len(response))])
    return np.log(shares)


def chance(probabilities: dict[tuple[int, ...], float], response: tuple[int, ...]) -> float:
    return math.exp(sum(logits(probabilities, response)[t, token] for t, token in enumerate(response)))


def whole_distribution(mu: dict[Any, float], pi: dict[Any, float], rewards: dict[Any, float]) -> Columns:
    """Return the columns of every response, each as often as mu's quarters make it."""
    rows = [response for response in RESPONSES for _ in range(round(chance(mu, response) * QUARTERS**2))]
    baseline = sum(chance(mu, response) * rewards[response] for response in RESPONSES)
    a, b = (np.array([logits(policy_, row) for row in rows]) for policy_ in (mu, pi))
    mu_taken, pi_taken = (np.take_along_axis(given, np.array(rows)[..., None], -1)[..., 0] for given in (a, b))
    mask = np.ones(mu_taken.shape, bool)
    columns = statistics.columns(
        rollout_logprobs=mu_taken,
        logprobs=pi_taken,
        mask=mask,
        advantages=[rewards[row] - baseline for row in rows],
    )
    return with_divergences(columns, divergence.exact(rollout_logits=a, logits=b, mask=mask))


def test_the_gain_of_every_small_policy_is_at_least_the_minorizer() -> None:
    rng = np.random.default_rng(0)
    positive = 0
    for _ in range(300):
        mu = policy(rng)
        pi = policy(rng, near=mu)
        rewards = {response: rng.uniform() for response in RESPONSES}
        gain = sum((chance(pi, response) - chance(mu, response)) * rewards[response] for response in RESPONSES)
        found = minorizer(whole_distribution(mu, pi, rewards), centred=True)
        assert gain >= found.value - 1e-9
        positive += found.value > 0
    assert positive > 0  # some gains are certified, so that the bound says something


def test_the_weighted_gain_of_every_small_policy_is_at_least_the_minorizer() -> None:
    rng = np.random.default_rng(3)
    positive = 0
    for _ in range(300):
        mu = policy(rng)
        pi = policy(rng, near=mu)
        rewards = {response: rng.uniform() for response in RESPONSES}
        soft = {response: rng.uniform(0.01, 1.0) for response in RESPONSES}
        baseline = sum(chance(mu, response) * rewards[response] for response in RESPONSES)
        weighted = {response: soft[response] * (rewards[response] - baseline) for response in RESPONSES}
        gain = sum((chance(pi, response) - chance(mu, response)) * weighted[response] for response in RESPONSES)
        rows = [response for response in RESPONSES for _ in range(round(chance(mu, response) * QUARTERS**2))]
        columns = whole_distribution(mu, pi, rewards)
        found = minorizer(columns, weights=np.array([soft[row] for row in rows]), centred=True)
        assert gain >= found.value - 1e-9
        positive += found.value > 0
    assert positive > 0


def test_weights_of_zero_and_one_are_acceptance_and_small_ones_stay_in_the_bound() -> None:
    rng = np.random.default_rng(4)
    mu = policy(rng)
    columns = whole_distribution(mu, policy(rng, near=mu), {response: rng.uniform() for response in RESPONSES})
    accepted = np.arange(columns.n_sequences) % 3 > 0
    assert minorizer(columns, weights=accepted.astype(float), centred=True) == minorizer(
        columns, accepted=accepted, centred=True
    )
    faint = minorizer(columns, weights=np.where(accepted, 1.0, 1e-12), centred=True)
    gain = surrogate(columns, accepted=accepted, centred=True).value
    assert faint.value == pytest.approx(gain - batch_bounds(columns).adaptive, abs=1e-9)


def test_it_is_the_surrogate_minus_the_bound_of_the_accepted_sequences() -> None:
    rng = np.random.default_rng(1)
    mu = policy(rng)
    columns = whole_distribution(mu, policy(rng, near=mu), {response: rng.uniform() for response in RESPONSES})
    accepted = np.arange(columns.n_sequences) % 3 > 0
    found = minorizer(columns, accepted=accepted, centred=True, reward_range=2.0)
    bounds = batch_bounds(columns, accepted=accepted, reward_range=2.0)
    assert found.value == surrogate(columns, accepted=accepted, centred=True).value - bounds.adaptive
    assert found.vacuous is bounds.vacuous


def test_it_is_unknown_without_exact_kl_or_a_declaration() -> None:
    rng = np.random.default_rng(2)
    mu = policy(rng)
    columns = whole_distribution(mu, mu, dict.fromkeys(RESPONSES, 0.5))
    assert minorizer(columns, centred=True).value == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(minorizer(columns).value)
    sampled = statistics.columns(rollout_logprobs=[[-1.0]], logprobs=[[-1.0]], mask=[[1]], advantages=[0.0])
    assert math.isnan(minorizer(sampled, centred=True).value)
    assert minorizer(sampled, centred=True).vacuous is None
