"""Every signal of the catalogue against its definition, computed from tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.core import reference
from tests.core.examples import batch, with_columns, with_kl
from trmon_client.core import divergence, statistics
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.divergence.divergence_columns import with_divergences
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.policy import preset
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.catalogue import SIGNALS

LOGPS = ("rollout_logprobs", "old_logprobs", "logprobs")
WITHIN_A_BIN = 10**0.1 - 1
FROM_HISTOGRAMS = {f"{pair}_{stem}" for pair in PAIRS for stem in ("abs_log_ratio_p99", "abs_log_ratio_p999")}
REWARDS = np.array([1.0, 1.0, 0.0, 1.0, 0.25, 0.5, 0.5, 0.5])
GAINS = np.array([0.5, -0.5, 2.0, np.nan, -1.25, 0.0, 0.0, 0.25])
GROUPS = np.array([5, 5, 5, 7, 7, 9, 9, 3])


def example_tokens(noise: float, *, n_sequences: int = 8) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return float64 log-probs below -0.01, a mask, and advantages per token."""
    given = batch(seed=21, n_sequences=n_sequences, horizon=200, noise=noise)
    logps = {name: np.minimum(given[name], -0.01).astype(np.float64) for name in LOGPS}
    given["mask"][3] = False
    return logps, given["mask"], np.random.default_rng(4).normal(size=given["mask"].shape)


@pytest.mark.parametrize(("noise", "n_sequences"), [(1e-2, 8), (0.2, 8), (0.2, 40), (2.0, 33)])
def test_signals_of_the_log_probs_equal_their_definitions(noise: float, n_sequences: int) -> None:
    logps, mask, advantages = example_tokens(noise, n_sequences=n_sequences)
    computed = batch_signals.compute(statistics.columns(**logps, mask=mask, advantages=advantages))
    expected = reference.signals(logps, mask) | reference.clip_fractions(logps, mask, advantages)
    expected |= reference.gradient_signals(logps, mask, advantages)
    for name, value in expected.items():
        relative = WITHIN_A_BIN if name in FROM_HISTOGRAMS else 1e-6
        assert computed[name] == pytest.approx(value, rel=relative, abs=1e-9, nan_ok=True), name
    of_advantages = {"advantage_max", "advantage_min", "advantage_invalid_share"}
    of_advantages |= {
        f"{stem}_{sign}" for stem in ("sampled_entropy", "ratio_mean") for sign in ("positive", "negative")
    }
    assert set(computed) == {*expected, "invalid_fraction"} | of_advantages


def test_signals_of_the_labels_equal_their_definitions() -> None:
    logps, mask, _ = example_tokens(0.1)
    mask[3] = True
    versions = np.random.default_rng(2).integers(3, 9, mask.shape)
    labels: dict[str, Any] = {"group_ids": GROUPS, "versions": versions, "truncated": np.arange(8) < 3}
    columns = statistics.columns(**logps, mask=mask, rewards=REWARDS, advantages=GAINS, **labels, trainer_version=11)
    computed = batch_signals.compute(columns)
    oldest = np.array([row[on].min() for row, on in zip(versions, mask, strict=True)])
    newest = np.array([row[on].max() for row, on in zip(versions, mask, strict=True)])
    d = logps["logprobs"] - logps["rollout_logprobs"]
    geo = np.array([np.exp(row[on].mean()) for row, on in zip(d, mask, strict=True)])
    expected = {
        "reward_mean": REWARDS.mean(),
        "reward_std": REWARDS.std(),
        "reward_min": 0.0,
        "reward_q01": np.quantile(REWARDS, 0.01),
        "reward_q05": np.quantile(REWARDS, 0.05),
        "reward_q25": np.quantile(REWARDS, 0.25),
        "reward_median": np.median(REWARDS),
        "reward_q75": np.quantile(REWARDS, 0.75),
        "reward_q95": np.quantile(REWARDS, 0.95),
        "reward_q99": np.quantile(REWARDS, 0.99),
        "reward_max": 1.0,
        "reward_invalid_share": 0.0,
        "advantage_max": np.nanmax(GAINS),
        "advantage_min": np.nanmin(GAINS),
        "advantage_invalid_share": 1 / 8,
        "reward_length_corr": np.corrcoef(REWARDS, mask.sum(axis=1))[0, 1],
        "length_limit_share": 3 / 8,
        "zero_variance_groups": 1 / 3,
        "effective_signal": np.mean([REWARDS[group == GROUPS].var(ddof=1) for group in (5, 7, 9)]),
        "distinct_prompts": 4,
        "distinct_prompt_share": 4 / 8,
        "group_ratio_variance": np.mean([geo[group == GROUPS].var() for group in (5, 7, 9)]),
        "version_lag_mean": (11 - oldest).mean(),
        "version_lag_max": (11 - oldest).max(),
        "version_span_max": (newest - oldest).max(),
    }
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    solved = statistics.columns(**logps, mask=mask, rewards=np.array([1, 1, 1, 0, 0, 1, 0, 1]), group_ids=GROUPS)
    computed = batch_signals.compute(solved)
    assert (computed["all_solved_groups"], computed["none_solved_groups"]) == pytest.approx((1 / 3, 1 / 3))


def test_signals_of_divergences_and_of_invalid_tokens_equal_their_definitions() -> None:
    logps, mask, _ = example_tokens(0.1)
    mask[:] = True
    logps["logprobs"][2, :20] = np.nan
    kl = np.random.default_rng(0).random(mask.shape)
    kl[2, :20] = 0.0
    columns = with_kl(statistics.columns(**logps, mask=mask), kl.max(axis=1).tolist())
    reverse, tv = (np.random.default_rng(seed).random(8).astype(np.float32) for seed in (1, 2))
    added = {"sum_kl": kl.sum(axis=1), "max_reverse_kl": reverse, "max_tv": tv, "sum_tv": 9.0 * tv}
    computed = batch_signals.compute(with_columns(columns, added))
    expected = {
        "kl_max": kl.max(),
        "kl_mean": kl.sum() / (mask.size - 20),
        "kl_seq": kl.sum(axis=1).mean(),
        "reverse_kl_max": reverse.max(),
        "tv_max": tv.max(),
        "tv_mean": 9.0 * tv.sum() / (mask.size - 20),
        "invalid_fraction": 20 / mask.size,
    }
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_signals_of_token_rules_equal_their_definitions() -> None:
    logps, mask, _ = example_tokens(0.5)
    decided = token_decision.apply_token_rules(preset("tis"), **logps, mask=mask)
    computed = batch_signals.compute(decided.attached_to(statistics.columns(**logps, mask=mask)))
    rho = np.exp(logps["old_logprobs"] - logps["rollout_logprobs"])[mask]
    weights = np.minimum(rho, 2.0)
    expected = {
        "token_mask_rate": 0.0,
        "token_trunc_rate": np.mean(rho > 2),
        "token_weight_mean": weights.mean(),
        "token_weight_ess": weights.sum() ** 2 / (len(weights) * (weights**2).sum()),
    }
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("preset_name", [None, "tis"])
def test_signals_of_the_gradient_equal_their_definitions(preset_name: str | None) -> None:
    logps, mask, advantages = example_tokens(0.5)
    columns = statistics.columns(**logps, mask=mask, advantages=advantages[:, 0])
    per_token = np.broadcast_to(advantages[:, :1], mask.shape)
    expected = reference.gradient_signals(logps, mask, per_token)
    if preset_name is not None:
        columns = token_decision.apply_token_rules(preset(preset_name), **logps, mask=mask).attached_to(columns)
        weights = np.minimum(np.exp(logps["old_logprobs"] - logps["rollout_logprobs"]), 2.0)
        means = np.array([row[on].mean() if on.any() else 0.0 for row, on in zip(weights, mask, strict=True)])
        weighted = reference.gradient_signals(logps, mask, per_token * means[:, None])
        expected |= {name: weighted[name] for name in expected if name.startswith("proxy2")}
    computed = batch_signals.compute(columns)
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_the_power_of_logits_is_the_squared_gradient_and_lies_in_the_band() -> None:
    """Against autograd: the gradient of A sum log pi(y) by the logits."""
    random = torch.Generator().manual_seed(0)
    rollout, logits = (torch.randn(5, 6, 11, generator=random, dtype=torch.float64) for _ in range(2))
    ids = torch.randint(0, 11, (5, 6, 1), generator=random)
    mask, advantages = torch.rand(5, 6, generator=random) < 0.8, torch.randn(5, generator=random, dtype=torch.float64)
    logits.requires_grad_()
    taken = [torch.log_softmax(one, -1).gather(-1, ids)[..., 0] for one in (rollout, logits)]
    (advantages[:, None] * taken[1] * mask).sum().backward()
    expected = float((logits.grad**2).sum((1, 2)).mean())
    given = {"rollout_logprobs": taken[0], "logprobs": taken[1].detach(), "mask": mask, "advantages": advantages}
    columns = statistics.columns(**given)
    band = batch_signals.compute(columns)
    assert band["proxy2_total_power_low"] < expected < band["proxy2_total_power_high"]
    both = {"rollout_logits": rollout, "logits": logits, "mask": mask}
    found = batch_signals.compute(with_divergences(columns, divergence.exact(**both, sum_pi_squared=True)))
    assert found["proxy2_total_power_low"] == pytest.approx(expected, rel=1e-9)
    assert found["proxy2_total_power_high"] == found["proxy2_total_power_low"]


def test_entropy_falls_by_the_covariance_under_natural_gradients() -> None:
    """A step eta along A (centred) on the logits changes the entropy by -eta cov(log pi, A), up to eta^2."""
    pi, gains, eta = np.array([0.5, 0.3, 0.15, 0.05]), np.array([1.0, -0.5, 0.2, -2.0]), 1e-5
    counts = (pi * 100).round().astype(int)
    logp = np.repeat(np.log(pi), counts)[:, None]
    columns = statistics.columns(
        rollout_logprobs=logp, logprobs=logp, mask=np.ones_like(logp), advantages=np.repeat(gains, counts)
    )
    moved = pi * np.exp(eta * gains)
    moved /= moved.sum()
    change = -(moved * np.log(moved)).sum() + (pi * np.log(pi)).sum()
    assert change == pytest.approx(-eta * batch_signals.compute(columns)["logp_advantage_cov"], rel=1e-3)


def test_sequences_without_an_advantage_have_no_part_in_the_gradient() -> None:
    logps, mask, advantages = example_tokens(0.1)
    gains = advantages[:, 0].copy()
    gains[[1, 5]] = np.nan
    known = ~np.isnan(gains)
    rest = {name: rows[known] for name, rows in logps.items()}
    found, expected = (
        batch_signals.compute(statistics.columns(**given, mask=on, advantages=gain))
        for given, on, gain in ((logps, mask, gains), (rest, mask[known], gains[known]))
    )
    for name in ("proxy2_total_power_low", "proxy2_total_power_high", "logp_advantage_cov"):
        assert found[name] == pytest.approx(expected[name], rel=1e-12)
    nothing = batch_signals.compute(statistics.columns(**logps, mask=mask, advantages=np.full(8, np.nan)))
    assert np.isnan(nothing["proxy2_total_power_low"])
    assert np.isnan(nothing["logp_advantage_cov"])


def test_signals_of_the_reference_policy_equal_their_definitions() -> None:
    logps, mask, _ = example_tokens(0.2)
    ref = np.minimum(logps["logprobs"] + np.random.default_rng(5).normal(0, 0.3, mask.shape), 0.0)
    computed = batch_signals.compute(statistics.columns(**logps, ref_logprobs=ref, mask=mask))
    ratio = np.exp(ref - logps["logprobs"])[mask]
    k3 = ratio - 1 - np.log(ratio)
    weights = np.exp(logps["logprobs"] - logps["rollout_logprobs"])[mask]
    expected = {
        "ref_kl_k1": -np.log(ratio).mean(),
        "ref_kl_k2": (np.log(ratio) ** 2).mean() / 2,
        "ref_kl_k3": k3.mean(),
        "ref_kl_k3_max": k3.max(),
        "ref_kl_k3_is": (weights * k3).mean(),
    }
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_pair_signals_exist_once_per_pair_with_its_prefix() -> None:
    for pair in PAIRS:
        of_pair = [spec for spec in SIGNALS.values() if spec.pair == pair]
        assert len(of_pair) == 48
        assert all(spec.name == f"{pair}_{spec.stem}" for spec in of_pair)
    assert len({spec.stem for spec in SIGNALS.values() if spec.core}) == 24


def test_every_signal_has_a_one_line_description() -> None:
    for spec in SIGNALS.values():
        assert spec.formula
        assert 0 < len(spec.description) <= 80
        assert not set(spec.description) & set('"\\\n')


def test_healthy_ranges_are_those_of_the_sources_and_not_the_limits_of_findings() -> None:
    """Three signals depend on lengths and noise: no absolute value of them is healthy. Source: formulas, section 9."""
    healthy = {spec.stem: spec.healthy for spec in SIGNALS.values()}
    assert (healthy["kl_k3"], healthy["band_fraction"], healthy["ppl_ratio"]) == ("< 0.005", "< 0.01", "0.99 to 1.01")
    assert [healthy[name] for name in ("abs_log_ratio_max", "chi2_seq", "chi2_seq_log1p", "tv")] == [""] * 4
