"""Slopes, e-values and the signals that tell corrupt log-probs from honest ones; none reacts to honest noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.core.agreement import same
from tests.core.examples import batch, of_log_ratios
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon_client.core import statistics
from trmon_client.core.columns import Columns, histograms
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.batch_signals import ln_e_values

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


JUDGE = Judge(builtin_catalogue())


def names(found: dict[str, float]) -> set[str]:
    """Return the clauses of corruption that stand after ten such rows."""
    values, state = {**found, "n_tokens": float(MASK.sum()), "n_sequences": float(SHAPE[0])}, JudgeState()
    for step in range(10):
        state = JUDGE.fold(state, Row(place=Place(0, step), values=values, facts={}))
    standing = {tuple(key.split(".")) for key, memory in state.clauses.items() if memory.stands}
    return {clause for finding, clause in standing if finding == "corrupt_logprobs"}


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1, 0.4])
def test_honest_log_probs_have_no_name_of_corruption(noise: float) -> None:
    assert names(signals(text(noise=noise))) == set()


CORRUPT: dict[str, tuple[Damage, set[str]]] = {
    "two of a hundred are dropped": (dropped(0.02), {"zeros"}),
    "a third is dropped": (dropped(0.3), {"zeros"}),
    "the ends are dropped": (lambda mu, p: (np.where(IS_END, 0, mu), p), {"zeros", "end_dropped"}),
    "padding is under the mask": (lambda mu, p: (np.where(IS_END, 0, mu), np.where(IS_END, 0, p)), {"padding"}),
    "negated": (lambda mu, p: (-mu, p), {"sign", "invalid"}),
    "probabilities": (lambda mu, p: (np.exp(mu), p), {"sign", "probabilities", "invalid"}),
    "negated probabilities": (lambda mu, p: (-np.exp(mu), p), {"negative_probabilities"}),
    "mu in log2": (lambda mu, p: (mu / LOG_2, p), {"unit"}),
    "the trainer in log2": (lambda mu, p: (mu, p / LOG_2), {"unit"}),
    "mu in log10": (lambda mu, p: (mu / LOG_10, p), {"unit"}),
    "the trainer in log10": (lambda mu, p: (mu, p / LOG_10), {"unit"}),
    "shifted by a token": (lambda mu, p: (np.roll(mu, 1, 1), p), {"shifted"}),
    "other sequences": (lambda mu, p: (np.roll(mu, 1, 0), p), {"order"}),
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
