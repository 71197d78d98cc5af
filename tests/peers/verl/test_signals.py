"""Compares trmon with verl 0.9.1: signals and proxies that are equal, and cases in which the two differ."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from verl.trainer.ppo import rollout_corr_helper as verl
from verl.trainer.ppo.metric_utils import compute_variance_proxy_metrics
from verl.utils.metric import Metric

from trmon.domain.signals.run_features import gradient_noise
from trmon_client.core import divergence, statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.token_decision import apply_token_rules
from trmon_client.core.signals import batch_signals

SIGNAL_OF_METRIC = {
    "kl": "mismatch_kl_k1",
    "k3_kl": "mismatch_kl_k3",
    "chi2_token": "mismatch_chi2_token",
    "chi2_seq": "mismatch_chi2_seq",
    "training_ppl": "ppl_old",
    "rollout_ppl": "ppl_rollout",
    "ppl_ratio": "mismatch_ppl_ratio",
    "log_ppl_diff": "mismatch_log_ppl_diff_mean",
    "log_ppl_abs_diff": "mismatch_log_ppl_diff_abs_mean",
    "log_ppl_diff_max": "mismatch_log_ppl_diff_max",
    "log_ppl_diff_min": "mismatch_log_ppl_diff_min",
    "rollout_is_eff_sample_size": "mismatch_ess_truncated",
    "rollout_is_ratio_fraction_high": "mismatch_trunc_fraction",
}
"""The signal of trmon for each metric of verl, named without `rollout_corr/`."""


def of_log_ratios(d: list[list[float]], *, rollout: float = -30.0) -> dict[str, Any]:
    """Return the arguments of verl for these log-ratios, with all tokens counting."""
    mu = torch.full((len(d), len(d[0])), rollout, dtype=torch.float64)
    return {"old_log_prob": mu + torch.tensor(d, dtype=mu.dtype), "rollout_log_prob": mu, "response_mask": mu * 0 + 1}


def verl_metrics(given: dict[str, Any], **options: Any) -> dict[str, float]:
    """Return the metrics that verl's trainer logs."""
    _, _, metrics = verl.compute_rollout_correction_and_rejection_mask(**given, **options)
    return {name.removeprefix("rollout_corr/"): value for name, value in metrics.items()}


def columns_of(given: dict[str, Any]) -> Columns:
    """Return trmon's columns for verl's arguments."""
    return statistics.columns(
        rollout_logprobs=given["rollout_log_prob"], old_logprobs=given["old_log_prob"], mask=given["response_mask"]
    )


def trmon_signals(given: dict[str, Any]) -> dict[str, float]:
    """Return trmon's signals for verl's arguments."""
    return batch_signals.compute(columns_of(given))


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_signals_equal_what_verl_logs(noise: float) -> None:
    generator = torch.Generator().manual_seed(0)
    old = -torch.empty((32, 40), dtype=torch.float64).exponential_(generator=generator)
    given = {
        "old_log_prob": old,
        "rollout_log_prob": (old + noise * torch.randn(old.shape, generator=generator)).clamp(max=0),
        "response_mask": (torch.arange(40) < torch.randint(1, 41, (32, 1), generator=generator)).double(),
    }
    found, expected = trmon_signals(given), verl_metrics(given, rollout_is="token", rollout_is_threshold=2.0)
    assert {name: found[mine] for name, mine in SIGNAL_OF_METRIC.items()} == pytest.approx(
        {name: expected[name] for name in SIGNAL_OF_METRIC}, rel=1e-6, abs=1e-9
    )


def test_verl_computes_the_effective_sample_size_after_truncation_which_hides_an_outlier() -> None:
    given = of_log_ratios([[10.0] + [0.0] * 999])
    expected = verl_metrics(given, rollout_is="token", rollout_is_threshold=2.0)
    found = trmon_signals(given)
    assert expected["rollout_is_eff_sample_size"] == pytest.approx(0.999, abs=1e-4)
    assert found["mismatch_ess_token"] == pytest.approx(0.0011, abs=1e-4)
    assert found["mismatch_ess_truncated"] == pytest.approx(expected["rollout_is_eff_sample_size"])


def test_a_large_float32_log_ratio_gives_infinite_k3_in_verl_and_a_clamped_one_in_trmon() -> None:
    given = {name: value.float() for name, value in of_log_ratios([[100.0, 0.0]], rollout=-101.0).items()}
    assert verl_metrics(given)["k3_kl"] == math.inf
    assert trmon_signals(given)["mismatch_kl_k3"] == pytest.approx((math.exp(20) - 101) / 2)


def test_icepop_without_a_kept_token_divides_by_zero_in_verl_and_has_band_fraction_one_in_trmon() -> None:
    given = of_log_ratios([[3.0, 3.0]])
    with pytest.raises(ZeroDivisionError):
        verl_metrics(given, rollout_is="token", rollout_is_threshold="0.5_5.0")
    found = trmon_signals(given)
    assert (found["mismatch_band_fraction"], found["mismatch_ess_token"]) == (1.0, pytest.approx(1.0))


def test_nan_under_the_mask_reaches_the_weights_of_verl_and_is_ignored_by_trmon() -> None:
    given = of_log_ratios([[0.1, 0.2]])
    expected = trmon_signals(given | {"response_mask": torch.tensor([[1.0, 0.0]])})
    given["response_mask"] = torch.tensor([[1.0, 0.0]])
    given["rollout_log_prob"] = torch.tensor([[-30.0, math.nan]], dtype=torch.float64)
    weights, _, _ = verl.compute_rollout_correction_and_rejection_mask(**given, rollout_is="token")
    assert torch.isnan(weights.batch["rollout_is_weights"]).any()
    assert trmon_signals(given) == pytest.approx(expected, nan_ok=True)


def test_a_batch_without_tokens_raises_in_verl_and_gives_nan_in_trmon() -> None:
    given = of_log_ratios([[0.1, 0.2]])
    given["response_mask"] = torch.zeros((1, 2))
    with pytest.raises(ValueError, match="at least one valid token"):
        verl_metrics(given)
    assert math.isnan(trmon_signals(given)["mismatch_kl_k3"])
    assert columns_of(given)["n_tokens"].tolist() == [0]


def test_verl_averages_maxima_over_micro_batches_and_merged_columns_keep_the_maximum() -> None:
    calm, wild = of_log_ratios([[0.0, 0.0]]), of_log_ratios([[-1.0, -1.0]])
    maxima = [verl_metrics(given)["log_ppl_diff_max"] for given in (calm, wild)]
    merged = batch_signals.compute(Columns.merge(columns_of(calm), columns_of(wild)))
    # verl's policy loss aggregates these metrics like this in bypass mode.
    averaged = Metric(aggregation="mean")
    averaged.extend(maxima)
    assert averaged.aggregate() == pytest.approx(0.5)
    assert merged["mismatch_log_ppl_diff_max"] == pytest.approx(1.0)


GRAD_NORM = 0.3


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "token TIS"])
def test_the_proxies_are_those_of_verl(is_weighted: bool) -> None:
    random = torch.Generator().manual_seed(0)
    rollout = torch.randn(6, 7, 11, generator=random, dtype=torch.float64)
    logits = rollout + 0.5 * torch.randn(rollout.shape, generator=random, dtype=torch.float64)
    ids = torch.randint(0, 11, (6, 7, 1), generator=random)
    mask, advantages = torch.arange(7) < torch.randint(2, 8, (6, 1), generator=random), torch.linspace(-1, 1, 6)
    mu, old = (torch.log_softmax(each, -1).gather(-1, ids)[..., 0] for each in (rollout, logits))
    given = {"rollout_logprobs": mu, "old_logprobs": old, "mask": mask}
    columns = statistics.columns(**given, advantages=advantages)
    tensors = {
        "sum_pi_squared": torch.softmax(logits, -1).square().sum(-1),
        "old_log_probs": old,
        "advantages": advantages.double()[:, None].expand(6, 7),
        "response_mask": mask.double(),
    }
    if is_weighted:
        decided = apply_token_rules(preset("tis"), **given)
        columns = decided.attached_to(columns)
        tensors["rollout_is_weights"] = torch.as_tensor(decided.weights, dtype=torch.float64)
    theirs = compute_variance_proxy_metrics(SimpleNamespace(batch=tensors), GRAD_NORM)
    power = theirs["variance_proxy/proxy2_total_power"]
    band = batch_signals.compute(columns)
    assert band["proxy2_total_power_low"] <= power <= band["proxy2_total_power_high"]
    both = {"rollout_logits": rollout, "old_logits": logits, "mask": mask}
    exact = batch_signals.compute(with_divergences(columns, divergence.exact(**both, sum_pi_squared=True)))
    assert exact["proxy2_total_power_low"] == exact["proxy2_total_power_high"] == pytest.approx(power, rel=1e-6)
    noise = gradient_noise({**exact, "n_sequences": 6.0}, grad_norm=GRAD_NORM)
    assert noise.pure_noise_low == pytest.approx(theirs["variance_proxy/proxy3_pure_noise"], rel=1e-6)
    assert noise.signal_strength == theirs["variance_proxy/proxy1_signal_strength"]
