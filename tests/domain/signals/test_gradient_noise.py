"""Proxy 1 and proxy 3 against gradients of a small policy whose parameters are its logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.signals.run_features import RunFeatures, gradient_noise
from trmon_client.core import statistics
from trmon_client.core.signals import batch_signals


@pytest.mark.parametrize("seed", range(20))
def test_the_band_contains_the_variance_of_the_mean_gradient(seed: int) -> None:
    random = np.random.default_rng(seed)
    pi = random.dirichlet(np.ones(5))
    tokens, advantages = random.choice(5, 12, p=pi), random.normal(size=12)
    gradients = advantages[:, None] * (np.eye(5)[tokens] - pi)
    logp = np.log(pi[tokens])[:, None]
    columns = statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=np.ones((12, 1)), advantages=advantages)
    numbers = {**batch_signals.compute(columns), "n_sequences": 12.0}
    found = gradient_noise(numbers, grad_norm=float(np.linalg.norm(gradients.mean(0))))
    variance_of_mean = gradients.var(0, ddof=1).sum() / 12
    assert found.signal_strength == pytest.approx((gradients.mean(0) ** 2).sum(), rel=1e-12)
    assert found.pure_noise_low is not None
    assert found.pure_noise_high is not None
    assert found.pure_noise_low <= variance_of_mean * (1 + 1e-12)
    assert variance_of_mean <= found.pure_noise_high * (1 + 1e-12)


@pytest.mark.parametrize(
    ("numbers", "grad_norm", "expected"),
    [
        ({"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 10.0, "n_sequences": 3.0}, 2.0, (4.0, 0.5, 3.0)),
        ({"proxy2_total_power_low": 1.0, "proxy2_total_power_high": 2.0, "n_sequences": 3.0}, 2.0, (4.0, 0.0, 0.0)),
        (
            {"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0, "n_sequences": 1.0},
            2.0,
            (4.0, None, None),
        ),
        ({"n_sequences": 3.0}, 2.0, (4.0, None, None)),
        ({"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0}, math.nan, (None, None, None)),
    ],
)
def test_noise_needs_the_norm_the_power_and_two_sequences(
    numbers: dict[str, float], grad_norm: float, expected: tuple[float | None, ...]
) -> None:
    found = gradient_noise(numbers, grad_norm=grad_norm)
    assert (found.signal_strength, found.pure_noise_low, found.pure_noise_high) == expected


def test_the_features_of_a_run_hold_the_newest_step_under_any_name_of_the_norm() -> None:
    numbers = {"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0, "n_sequences": 3.0}
    features = RunFeatures().with_step(numbers, scalars={"actor/grad_norm": 2.0})
    assert {name: features.signals()[name] for name in ("proxy1_signal_strength", "proxy3_pure_noise_low")} == {
        "proxy1_signal_strength": 4.0,
        "proxy3_pure_noise_low": 0.5,
    }
    assert "proxy1_signal_strength" not in features.with_step(numbers, scalars={}).signals()
