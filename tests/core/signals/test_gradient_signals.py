"""Slopes find a temperature, and the e-value finds log-probs of another sampler; neither reacts to honest noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.core.agreement import same
from tests.core.batches import batch
from tests.core.example_columns import of_log_ratios
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.histogram import histograms
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.gradient_signals import ln_e_values

STEMS = ("logp_slope_q", "logp_slope_p", "logp_corr_q", "temperature_near", "temperature_far")
LN_1E6 = math.log(1e6)


def sampled_at(ratio: float, *, n: int = 6000, vocabulary: int = 200) -> dict[str, float]:
    """Return the signals of tokens sampled at a temperature, beside a trainer at 1; positions differ in entropy."""
    random = np.random.default_rng(1)
    logits = random.normal(size=(n, vocabulary)) * random.uniform(0.5, 6.0, (n, 1))
    tokens = np.argmax(logits / ratio + random.gumbel(size=logits.shape), -1)
    policies = {"rollout_logprobs": logits / ratio, "logprobs": logits}
    logps = {
        name: (scores[np.arange(n), tokens] - np.log(np.exp(scores).sum(-1))).reshape(20, -1)
        for name, scores in policies.items()
    }
    return batch_signals.compute(statistics.columns(**logps, mask=np.ones((20, n // 20), bool)))


@pytest.mark.parametrize(("temperature", "near"), [(0.7, 0.86), (0.9, 0.95), (0.95, 0.98), (1.1, 1.05), (1.2, 1.10)])
def test_the_slopes_bracket_the_ratio_of_temperatures(temperature: float, near: float) -> None:
    found = sampled_at(temperature)
    assert found["total_temperature_near"] == pytest.approx(near, abs=0.015)
    assert found["total_temperature_far"] == pytest.approx(temperature, abs=0.03)
    slopes = found["total_logp_slope_q"], found["total_logp_slope_p"]
    assert slopes[0] * slopes[1] > 0
    assert min(map(abs, slopes)) >= 0.015
    assert abs(found["total_logp_corr_q"]) >= 0.25
    assert abs(found["total_ratio_mean"] - 1) < 0.02
    assert found["total_ln_e_value"] < LN_1E6


@pytest.mark.parametrize("noise", [1e-4, 1e-2, 0.1])
def test_noise_has_no_slopes_of_one_sign(noise: float) -> None:
    random = np.random.default_rng(3)
    rollout = -random.exponential(1.0, (16, 500))
    current = rollout + random.normal(0, noise, rollout.shape)
    found = batch_signals.compute(
        statistics.columns(rollout_logprobs=rollout, logprobs=current, mask=np.ones(rollout.shape, bool))
    )
    assert abs(found["total_logp_corr_q"]) < 0.25
    assert min(abs(found["total_logp_slope_q"]), abs(found["total_logp_slope_p"])) < 0.015


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_slopes_of_a_constant_log_ratio_or_log_prob_are_nan(shift: float) -> None:
    rollout = np.log(np.random.default_rng(0).uniform(0.1, 0.3, (2, 100)))
    found = batch_signals.compute(
        statistics.columns(rollout_logprobs=rollout, logprobs=rollout + shift, mask=np.ones(rollout.shape, bool))
    )
    of_constants = batch_signals.compute(of_log_ratios([0.1, -0.2, 0.3]))
    assert all(math.isnan(signals[f"total_{stem}"]) for stem in STEMS for signals in (found, of_constants))


def test_columns_of_an_older_client_give_every_other_signal() -> None:
    newer = statistics.columns(**batch(seed=3))
    older = replace(newer, by_name={name: newer[name] for name in newer if "sum_sq_logp" not in name})
    counts = {"n_mu_zero", "n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail", "n_positive"}
    older = replace(older, by_name={name: older[name] for name in older if name not in counts})
    found, expected = batch_signals.compute(older), batch_signals.compute(newer)
    absent = {f"{pair}_{stem}" for pair in newer.pairs for stem in STEMS} | counts
    absent |= {"mu_zero_saturated_share", "positive_fraction", "logp_unit", "logp_unit_residual"}
    rest = {name: value for name, value in expected.items() if name not in absent}
    assert found == pytest.approx(rest, rel=0, abs=0, nan_ok=True)
    same(Columns.merge(newer, older), Columns.merge(older, older))


def e_value_of(d: np.ndarray) -> float:
    return ln_e_values(list(histograms(d[None], valid=np.ones(d.shape, bool))))[0]


def _honest(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log q and log p of n tokens that q sampled, where log p is noisy and E_q[rho] = 1."""
    log_q = -random.exponential(1.0, n)
    return log_q, log_q + random.normal(-0.005, 0.1, n)


def _shifted(random: np.random.Generator, n: int) -> np.ndarray:
    """Log-probs that stand at the token before theirs."""
    log_q, log_p = _honest(random, n)
    return log_p - np.roll(log_q, 1)


def _scrambled(random: np.random.Generator, n: int) -> np.ndarray:
    """One percent of the log-probs belong to other tokens."""
    log_q, log_p = _honest(random, n)
    wrong = random.random(n) < 0.01
    log_q[wrong] = -random.exponential(1.0, int(wrong.sum())) * 3.0
    return log_p - log_q


def _constant(random: np.random.Generator, n: int) -> np.ndarray:
    """One percent of the log-probs are a constant."""
    log_q, log_p = _honest(random, n)
    log_q[random.random(n) < 0.01] = -5.0
    return log_p - log_q


@pytest.mark.parametrize(
    ("corrupted", "n"), [(_shifted, 200), (_shifted, 20_000), (_scrambled, 20_000), (_constant, 20_000)]
)
def test_log_probs_of_another_sampler_have_a_large_e_value(
    corrupted: Callable[[np.random.Generator, int], np.ndarray], n: int
) -> None:
    assert min(e_value_of(corrupted(np.random.default_rng(seed), n)) for seed in range(20)) >= LN_1E6


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("n", [200, 20_000])
def test_honest_ratios_never_have_a_large_e_value_however_heavy_their_tails(sigma: float, n: int) -> None:
    # Log-normal ratios have mean 1 if the mean of their logs is -sigma^2 / 2.
    found = [e_value_of(np.random.default_rng(seed).normal(-sigma * sigma / 2, sigma, n)) for seed in range(100)]
    assert max(found) < LN_1E6


def test_an_empty_histogram_has_no_e_value() -> None:
    assert math.isnan(e_value_of(np.zeros(0)))
