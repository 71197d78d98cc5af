"""The signals that tell corrupt log-probs from honest ones, on tokens like those of text."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from trmon_client.core import statistics
from trmon_client.core.signals import batch_signals

Tokens = tuple[np.ndarray, np.ndarray]
"""log mu and the trainer's log-probs, float32 [B, T]."""
SHAPE = (96, 300)
N_CANDIDATES = 16
MASK = np.arange(SHAPE[1]) < np.random.default_rng(7).integers(60, SHAPE[1] + 1, (SHAPE[0], 1))


@cache
def text(seed: int = 0, *, noise: float = 0.03) -> Tokens:
    """Return sampled tokens of which four in five are near certain, with noise on the logits of the sampler."""
    random = np.random.default_rng(seed)
    n = math.prod(SHAPE)
    logits = 1.5 * random.standard_normal((n, N_CANDIDATES))
    rest = 10.0 ** -random.uniform(1, 9, n)
    certain = np.log1p(-rest) - np.log(rest) + np.log(np.exp(logits[:, 1:]).sum(1))
    logits[:, 0] = np.where(random.random(n) < 0.78, certain, logits[:, 0])
    sampler, trainer = (_log_softmax(z) for z in (logits + noise * random.standard_normal(logits.shape), logits))
    drawn = (sampler + random.gumbel(size=logits.shape)).argmax(1)[:, None]
    mu, p = (np.take_along_axis(logp, drawn, 1).reshape(SHAPE) for logp in (sampler, trainer))
    return mu, p


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    z = (logits - logits.max(1, keepdims=True)).astype(np.float32)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


Damage = Callable[[np.ndarray, np.ndarray], Tokens]
"""What corrupt tokens are of honest ones."""
LOG_2, LOG_10 = np.float32(np.log(2)), np.float32(np.log(10))
IS_END = np.arange(SHAPE[1]) >= 0.8 * MASK.sum(1, keepdims=True)


def dropped(share: float) -> Damage:
    """Set log mu to 0 at random places."""
    is_lost = np.random.default_rng(1).random(SHAPE) < share
    return lambda mu, p: (np.where(is_lost, np.float32(0), mu), p)


def signals(tokens: Tokens) -> dict[str, float]:
    mu, p = tokens
    return batch_signals.compute(statistics.columns(rollout_logprobs=mu, old_logprobs=p, mask=MASK))


def names(found: dict[str, float]) -> set[str]:
    """Return the names of corruption whose conditions hold in one row. Source: findings, section 2b."""
    n = MASK.sum() * (1 - found["invalid_fraction"])
    size, pearson, k1 = (found[f"mismatch_{stem}"] for stem in ("abs_log_ratio_mean", "prob_pearson", "kl_k1"))
    error = 3 * math.sqrt(2 * found["mismatch_kl_k2"] / n)
    is_other = pearson < 0.5 and size > 0.1 and abs(k1) < max(0.1 * size, error)
    # The sums of a shifted sequence telescope; 2 k2 is the mean of d^2, which the spread of other sums is near.
    is_telescope = found["mismatch_drift_spread"] < 0.2 * 2 * found["mismatch_kl_k2"]
    zeros, tail = found["n_mu_zero_unlikely"], found["n_zero_tail"]
    usual_tail = SHAPE[0] / (1 - (found["n_mu_zero"] - tail) / (n - tail))
    conditions = {
        "sign": found["positive_fraction"] > 0.1 and found["mu_logprob_mean"] > -0.001,
        "probabilities": found["positive_fraction"] > 0.9,
        "negated probabilities": pearson < -0.9,
        "shifted": is_other and is_telescope,
        "other sequences": is_other and not is_telescope,
        "zeros": zeros >= 5 and zeros > 0.002 * found["n_unlikely"] and zeros >= 0.6 * found["n_prob_diff_half"],
        "end dropped": tail > 0.05 * n and tail > 3 * usual_tail,
    }
    is_another_unit = found["logp_unit_residual"] < 0.25
    for unit in (0.693, 1.443, 2.303, 0.434):
        conditions[f"unit {unit}"] = is_another_unit and abs(found["logp_unit"] / unit - 1) < 0.03
    return {name for name, holds in conditions.items() if holds}


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1, 0.4])
def test_honest_log_probs_have_no_name_of_corruption(noise: float) -> None:
    assert names(signals(text(noise=noise))) == set()


CORRUPT: dict[str, tuple[Damage, set[str]]] = {
    "two of a hundred are dropped": (dropped(0.02), {"zeros"}),
    "a third is dropped": (dropped(0.3), {"zeros"}),
    "the ends are dropped": (lambda mu, p: (np.where(IS_END, 0, mu), p), {"zeros", "end dropped"}),
    "padding is under the mask": (lambda mu, p: (np.where(IS_END, 0, mu), np.where(IS_END, 0, p)), {"end dropped"}),
    "negated": (lambda mu, p: (-mu, p), {"sign"}),
    "probabilities": (lambda mu, p: (np.exp(mu), p), {"sign", "probabilities"}),
    "negated probabilities": (lambda mu, p: (-np.exp(mu), p), {"negated probabilities"}),
    "mu in log2": (lambda mu, p: (mu / LOG_2, p), {"unit 0.693"}),
    "the trainer in log2": (lambda mu, p: (mu, p / LOG_2), {"unit 1.443"}),
    "mu in log10": (lambda mu, p: (mu / LOG_10, p), {"unit 2.303"}),
    "the trainer in log10": (lambda mu, p: (mu, p / LOG_10), {"unit 0.434"}),
    "shifted by a token": (lambda mu, p: (np.roll(mu, 1, 1), p), {"shifted"}),
    "other sequences": (lambda mu, p: (np.roll(mu, 1, 0), p), {"other sequences"}),
}


@pytest.mark.parametrize(("damage", "expected"), CORRUPT.values(), ids=CORRUPT)
def test_corrupt_log_probs_are_told_apart(damage: Damage, expected: set[str]) -> None:
    assert names(signals(damage(*text()))) == expected


@pytest.mark.parametrize("horizon", [40, 300])
def test_a_shift_leaves_less_in_the_sums_of_sequences_than_other_sequences(horizon: int) -> None:
    mu, p = (array[:, :horizon] for array in text())
    mask = np.ones(mu.shape, bool)
    shifted, others = (
        batch_signals.compute(statistics.columns(rollout_logprobs=moved, old_logprobs=p, mask=mask))
        for moved in (np.roll(mu, 1, 1), np.roll(mu, 1, 0))
    )
    assert shifted["seq_shift_share"] < 0.2 * others["seq_shift_share"]
    assert shifted["mismatch_drift_spread"] < 0.1 * others["mismatch_drift_spread"]


def spread(*, n: int = 256, variance: float = 1e-3, longer: float = 1.0, outlier: float = 0.0) -> float:
    """Return the drift spread of log-ratios of a variance a token, of lengths of one to three hundreds of tokens."""
    random = np.random.default_rng(3)
    lengths = (longer * random.integers(100, 300, n)).astype(int)
    rows = [np.sqrt(variance) * random.standard_normal(length) - variance / 2 for length in lengths]
    rows[0] = rows[0] - outlier / len(rows[0])
    rollout = [np.full(len(row), -2.0) for row in rows]
    columns = statistics.columns(
        rollout_logprobs=rollout, logprobs=[mu + d for mu, d in zip(rollout, rows, strict=True)]
    )
    return batch_signals.compute(columns)["total_drift_spread"]


def test_the_drift_spread_is_the_variance_of_a_token_whatever_the_lengths_and_outliers() -> None:
    assert spread() == pytest.approx(1e-3, rel=0.25)
    assert spread(longer=4) == pytest.approx(1e-3, rel=0.25)
    assert spread(outlier=30) == pytest.approx(1e-3, rel=0.25)
    assert spread(variance=4e-3) == pytest.approx(4e-3, rel=0.25)
    assert math.isfinite(spread(n=32))
    assert math.isnan(spread(n=31))


def test_the_signals_are_of_the_sampler_with_pi_where_pi_old_is_not_given() -> None:
    mu, p = text()
    old = statistics.columns(rollout_logprobs=mu, old_logprobs=p, logprobs=p - np.float32(0.5), mask=MASK)
    new = statistics.columns(rollout_logprobs=mu, logprobs=p, mask=MASK)
    found, expected = batch_signals.compute(old), batch_signals.compute(new)
    names_of_sampler = ("n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail", "n_positive")
    for name in (*names_of_sampler, "logp_unit", "logp_unit_residual", "seq_shift_share", "mu_logprob_mean"):
        assert found[name] == pytest.approx(expected[name], rel=1e-12), name
    without = batch_signals.compute(statistics.columns(old_logprobs=mu, logprobs=p, mask=MASK))
    assert not [name for name in ("n_mu_zero", *names_of_sampler, "logp_unit", "mu_logprob_mean") if name in without]
