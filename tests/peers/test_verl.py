"""verl 0.9.1 beside trmon: equal where both are defined, and where they differ, its value, ours and why.

`make peers` runs it: verl brings a hundred packages, which the default tests do without.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from verl.trainer.ppo import rollout_corr_helper as verl
from verl.utils.metric import Metric

from trmon_client.core import statistics
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies import acceptance
from trmon_client.core.signals import batch_signals

SAME = {
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
"""verl's name of a metric, without `rollout_corr/`, and our signal."""


def of_log_ratios(d: list[list[float]], *, rollout: float = -30.0) -> dict[str, Any]:
    """Return verl's arguments for these log-ratios, all tokens counting."""
    mu = torch.full((len(d), len(d[0])), rollout, dtype=torch.float64)
    return {"old_log_prob": mu + torch.tensor(d, dtype=mu.dtype), "rollout_log_prob": mu, "response_mask": mu * 0 + 1}


def theirs(given: dict[str, Any], **options: Any) -> dict[str, float]:
    """Return verl's metrics as its trainer asks for them."""
    _, _, metrics = verl.compute_rollout_correction_and_rejection_mask(**given, **options)
    return {name.removeprefix("rollout_corr/"): value for name, value in metrics.items()}


def reduced(given: dict[str, Any]) -> Columns:
    """Return our columns of verl's arguments."""
    return statistics.columns(
        rollout_logprobs=given["rollout_log_prob"], old_logprobs=given["old_log_prob"], mask=given["response_mask"]
    )


def ours(given: dict[str, Any]) -> dict[str, float]:
    """Return our signals of verl's arguments."""
    return batch_signals.compute(reduced(given))


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_signals_equal_what_verl_logs(noise: float) -> None:
    generator = torch.Generator().manual_seed(0)
    old = -torch.empty((32, 40), dtype=torch.float64).exponential_(generator=generator)
    given = {
        "old_log_prob": old,
        "rollout_log_prob": (old + noise * torch.randn(old.shape, generator=generator)).clamp(max=0),
        "response_mask": (torch.arange(40) < torch.randint(1, 41, (32, 1), generator=generator)).double(),
    }
    found, expected = ours(given), theirs(given, rollout_is="token", rollout_is_threshold=2.0)
    assert {name: found[mine] for name, mine in SAME.items()} == pytest.approx(
        {name: expected[name] for name in SAME}, rel=1e-6, abs=1e-9
    )


def test_verl_takes_the_effective_sample_size_after_truncation_which_hides_the_outlier_that_ruins_it() -> None:
    given = of_log_ratios([[10.0] + [0.0] * 999])
    expected = theirs(given, rollout_is="token", rollout_is_threshold=2.0)
    found = ours(given)
    assert expected["rollout_is_eff_sample_size"] == pytest.approx(0.999, abs=1e-4)
    assert found["mismatch_ess_token"] == pytest.approx(0.0011, abs=1e-4)
    assert found["mismatch_ess_truncated"] == pytest.approx(expected["rollout_is_eff_sample_size"])


@pytest.mark.parametrize(("ratio", "verl_keeps", "we_keep"), [(1.5, True, False), (0.65, False, True)])
def test_verl_bounds_the_inverse_ratio_under_k1_and_we_the_ratio(ratio: float, verl_keeps: bool, we_keep: bool) -> None:
    given = of_log_ratios([[math.log(ratio)] * 4])
    _, mask, _ = verl.compute_rollout_correction_and_rejection_mask(
        **given, rollout_rs="seq_mean_k1", rollout_rs_threshold="0.6_1.4"
    )
    decision = acceptance.decide(reduced(given), acceptance.preset("seq_mean_k1", lower=0.6, upper=1.4))
    assert (bool(mask.any()), bool(decision.accepted[0])) == (verl_keeps, we_keep)


def test_verl_reports_an_infinite_k3_for_one_wild_float32_token_and_we_a_clamped_one() -> None:
    given = {name: value.float() for name, value in of_log_ratios([[100.0, 0.0]], rollout=-101.0).items()}
    assert theirs(given)["k3_kl"] == math.inf
    assert ours(given)["mismatch_kl_k3"] == pytest.approx((math.exp(20) - 101) / 2)


def test_verl_divides_by_zero_when_icepop_drops_every_token_and_we_report_all_of_them_out_of_the_band() -> None:
    given = of_log_ratios([[3.0, 3.0]])
    with pytest.raises(ZeroDivisionError):
        theirs(given, rollout_is="token", rollout_is_threshold="0.5_5.0")
    found = ours(given)
    assert (found["mismatch_band_fraction"], found["mismatch_ess_token"]) == (1.0, pytest.approx(1.0))


def test_nan_under_the_mask_survives_into_verls_weights_and_never_matters_to_us() -> None:
    given = of_log_ratios([[0.1, 0.2]])
    expected = ours(given | {"response_mask": torch.tensor([[1.0, 0.0]])})
    given["response_mask"] = torch.tensor([[1.0, 0.0]])
    given["rollout_log_prob"] = torch.tensor([[-30.0, math.nan]], dtype=torch.float64)
    weights, _, _ = verl.compute_rollout_correction_and_rejection_mask(**given, rollout_is="token")
    assert torch.isnan(weights.batch["rollout_is_weights"]).any()
    assert ours(given) == pytest.approx(expected, nan_ok=True)


def test_a_batch_without_tokens_raises_in_verl_and_is_an_answer_here() -> None:
    given = of_log_ratios([[0.1, 0.2]])
    given["response_mask"] = torch.zeros((1, 2))
    with pytest.raises(ValueError, match="at least one valid token"):
        theirs(given)
    assert math.isnan(ours(given)["mismatch_kl_k3"])
    assert reduced(given)["n_tokens"].tolist() == [0]


def test_the_mean_of_verls_maxima_over_micro_batches_hides_the_largest_and_merged_columns_keep_it() -> None:
    calm, wild = of_log_ratios([[0.0, 0.0]]), of_log_ratios([[-1.0, -1.0]])
    maxima = [theirs(given)["log_ppl_diff_max"] for given in (calm, wild)]
    merged = batch_signals.compute(Columns.merge(reduced(calm), reduced(wild)))
    # As verl's policy loss aggregates these metrics in bypass mode.
    averaged = Metric(aggregation="mean")
    averaged.extend(maxima)
    assert averaged.aggregate() == pytest.approx(0.5)
    assert merged["mismatch_log_ppl_diff_max"] == pytest.approx(1.0)
