"""The alpha split against the probabilities of the tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.core.batches import batch
from tests.core.example_columns import as_torch, of_log_ratios
from trmon_client.core import statistics
from trmon_client.core.bounds import AlphaSplit, alpha_split
from trmon_client.core.signals import batch_signals


def test_the_split_holds_the_largest_differences_of_probability() -> None:
    given = batch(seed=3, noise=0.3)
    columns = statistics.columns(**given)
    mu, old, new = (np.exp(given[name].astype(float)) for name in ("rollout_logprobs", "old_logprobs", "logprobs"))
    mismatch = np.abs(old - mu)[given["mask"]].max()
    staleness = np.abs(new - old)[given["mask"]].max()
    split = alpha_split(columns)
    assert (split.mismatch, split.staleness) == pytest.approx((mismatch, staleness), rel=1e-6)
    assert split.mismatch_share == pytest.approx(mismatch / (mismatch + staleness), rel=1e-6)
    assert split.mismatch_share + split.staleness_share == 1.0
    computed = batch_signals.compute(columns)
    assert split == AlphaSplit.of_signals(computed)
    assert alpha_split(as_torch(columns)) == split


def test_a_bound_is_at_most_the_total_variation() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.ones(8), 2)
    logp, logq = np.log(p)[:, None], np.log(q)[:, None]
    split = alpha_split(statistics.columns(rollout_logprobs=logp, old_logprobs=logq, logprobs=logq, mask=logp < 0))
    assert 0 < split.mismatch <= np.abs(p - q).sum() / 2
    assert (split.staleness, split.mismatch_share) == (0.0, 1.0)


def test_equal_policies_have_no_split() -> None:
    logp = np.full((2, 3), -1.0)
    split = alpha_split(statistics.columns(rollout_logprobs=logp, old_logprobs=logp, logprobs=logp, mask=logp < 0))
    assert (split.mismatch, split.staleness) == (0.0, 0.0)
    assert math.isnan(split.mismatch_share)
    assert math.isnan(split.staleness_share)


def test_the_shares_are_nan_without_both_pairs_or_without_a_token() -> None:
    assert math.isnan(alpha_split(of_log_ratios([0.3])).mismatch_share)
    logp = np.full((1, 2), np.nan)
    columns = statistics.columns(rollout_logprobs=logp, old_logprobs=logp, logprobs=logp, mask=np.ones((1, 2)))
    assert math.isnan(alpha_split(columns).staleness_share)
