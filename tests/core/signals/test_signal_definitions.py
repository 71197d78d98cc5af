"""Every signal of the catalogue against its definition, computed from tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core import plain_signals
from tests.core.batches import batch
from tests.core.example_columns import with_columns, with_kl
from tests.core.reference import PAIRS
from trmon_client.core import statistics
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.policy import preset
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.catalogue import SIGNALS

LOGPS = ("rollout_logprobs", "old_logprobs", "logprobs")
WITHIN_A_BIN = 10**0.1 - 1
FROM_HISTOGRAMS = {f"{pair}_{stem}" for pair in PAIRS for stem in ("abs_log_ratio_p99", "abs_log_ratio_p999")}
REWARDS = np.array([1.0, 1.0, 0.0, 1.0, 0.25, 0.5, 0.5, 0.5])
GROUPS = np.array([5, 5, 5, 7, 7, 9, 9, 3])


def example_tokens(noise: float) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return float64 log-probs below -0.01, a mask, and advantages per token."""
    given = batch(seed=21, n_sequences=8, horizon=200, noise=noise)
    logps = {name: np.minimum(given[name], -0.01).astype(np.float64) for name in LOGPS}
    given["mask"][3] = False
    return logps, given["mask"], np.random.default_rng(4).normal(size=given["mask"].shape)


@pytest.mark.parametrize("noise", [1e-2, 0.2])
def test_signals_of_the_log_probs_equal_their_definitions(noise: float) -> None:
    logps, mask, advantages = example_tokens(noise)
    computed = batch_signals.compute(statistics.columns(**logps, mask=mask, advantages=advantages))
    expected = plain_signals.signals(logps, mask) | plain_signals.clip_fractions(logps, mask, advantages)
    for name, value in expected.items():
        relative = WITHIN_A_BIN if name in FROM_HISTOGRAMS else 1e-6
        assert computed[name] == pytest.approx(value, rel=relative, abs=1e-9, nan_ok=True), name
    assert set(computed) == {*expected, "invalid_fraction"}


def test_signals_of_the_labels_equal_their_definitions() -> None:
    logps, mask, _ = example_tokens(0.1)
    mask[3] = True
    versions = np.random.default_rng(2).integers(3, 9, mask.shape)
    labels: dict[str, Any] = {"group_ids": GROUPS, "versions": versions, "truncated": np.arange(8) < 3}
    columns = statistics.columns(**logps, mask=mask, rewards=REWARDS, **labels, trainer_version=11)
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
        "reward_length_corr": np.corrcoef(REWARDS, mask.sum(axis=1))[0, 1],
        "length_limit_share": 3 / 8,
        "zero_variance_groups": 1 / 3,
        "effective_signal": np.mean([REWARDS[group == GROUPS].var(ddof=1) for group in (5, 7, 9)]),
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
    added = {"sum_kl": kl.sum(axis=1), "max_reverse_kl": reverse, "max_tv": tv}
    computed = batch_signals.compute(with_columns(columns, added))
    expected = {
        "kl_max": kl.max(),
        "kl_mean": kl.sum() / (mask.size - 20),
        "kl_seq": kl.sum(axis=1).mean(),
        "reverse_kl_max": reverse.max(),
        "tv_max": tv.max(),
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


def test_every_signal_of_the_catalogue_has_a_definition_here() -> None:
    logps, mask, advantages = example_tokens(0.1)
    defined = plain_signals.signals(logps, mask) | plain_signals.clip_fractions(logps, mask, advantages)
    elsewhere = {
        *("reward_mean", "reward_std", "zero_variance_groups", "group_ratio_variance"),
        *("reward_min", "reward_q01", "reward_q05", "reward_q25", "reward_median", "reward_length_corr"),
        *("all_solved_groups", "none_solved_groups", "effective_signal"),
        *("version_lag_mean", "version_lag_max", "version_span_max"),
        *("kl_max", "kl_mean", "kl_seq", "reverse_kl_max", "tv_max", "invalid_fraction"),
        *("token_mask_rate", "token_trunc_rate", "token_weight_mean", "token_weight_ess"),
    }
    assert {*defined, *elsewhere} == SIGNALS.keys()
