"""Random batches for tests: healthy, drifting, or with the invalid log-probs that engines produce."""

from __future__ import annotations

from typing import Any

import numpy as np

POISON = (np.nan, np.inf, -np.inf, -9999.0, -1000.0, 1.0, 2e-4)
"""Invalid log-probs."""
ODD = (0.0, 5e-5, -1e-9, -30.0, -999.0)
"""Unusual log-probs that are valid."""
GIVES = {
    "rollout and old": ("rollout_logprobs", "old_logprobs"),
    "rollout and new": ("rollout_logprobs", "logprobs"),
    "old and new": ("old_logprobs", "logprobs"),
    "all three": ("rollout_logprobs", "old_logprobs", "logprobs"),
}
"""The combinations of policies that can be given."""


def batch(
    seed: int, *, n_sequences: int = 6, horizon: int = 12, noise: float = 0.1, odd: float = 0.0
) -> dict[str, Any]:
    """Return three log-probs float32 [B, T] and a mask; a fraction `odd` is from POISON, and the same from ODD."""
    random = np.random.default_rng(seed)
    shape = (n_sequences, horizon)
    rollout = -random.exponential(1.0, shape)
    old = np.minimum(rollout + random.normal(0, noise, shape), 0)
    new = np.minimum(old + random.normal(0, noise, shape), 0)
    given: dict[str, Any] = {}
    for name, logp in (("rollout_logprobs", rollout), ("old_logprobs", old), ("logprobs", new)):
        chance = random.random(shape)
        logp = np.where(chance < odd, random.choice(POISON, shape), logp)
        logp = np.where(chance > 1 - odd, random.choice(ODD, shape), logp)
        given[name] = logp.astype(np.float32)
    given["mask"] = random.random(shape) < 0.8
    return given


def batch_of_zeros(seed: int, *, n_sequences: int = 6, horizon: int = 12) -> dict[str, Any]:
    """Return log-probs of which many of mu are 0, up to the end of a sequence where its tail is not broken.

    Some are positive or NaN, the mask has holes; the last sequence is 0 throughout, the one before it is empty.
    """
    random = np.random.default_rng(seed)
    given = batch(seed, n_sequences=n_sequences, horizon=horizon, noise=1.0, odd=0.2 / horizon)
    mu, mask = given["rollout_logprobs"], given["mask"]
    starts = random.integers(0, horizon, (n_sequences, 1))
    mu[(np.arange(horizon) >= starts) | (random.random(mu.shape) < 0.3)] = 0.0
    mu[-1] = 0.0
    mask[-2] = False
    for name in ("old_logprobs", "logprobs"):
        given[name][random.random(mu.shape) < 0.3] = -2.0
        given[name][0, 0] = 0.5
    mask[0, 0] = True
    return given
