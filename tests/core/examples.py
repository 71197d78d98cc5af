"""Example input: random batches, healthy, drifting or with invalid log-probs, and columns of given log-ratios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.core import golden
from trmon_client.core import statistics
from trmon_client.core.column_schema import COLUMNS
from trmon_client.core.columns import Columns

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


def golden_columns(case: str) -> Columns:
    """Return the columns and advantages of a golden file in the dtypes of the schema, with versions of lag 0."""
    stated = {name: array.astype(COLUMNS[name].dtype) for name, array in golden.columns(case).items()}
    advantages = golden.inputs(case)["advantages"]
    versions = np.zeros(len(advantages), COLUMNS["version_min"].dtype)
    return Columns({**stated, "advantage": advantages, "version_min": versions}, trainer_version=0)


def of_log_ratios(*rows: list[float], **given: Any) -> Columns:
    """Return columns of the pair total with these log-ratios; log mu is -4 at each token."""
    rollout = [np.full(len(row), -4.0) for row in rows]
    current = [np.array(row, np.float64) - 4.0 for row in rows]
    return statistics.columns(rollout_logprobs=rollout, logprobs=current, **given)


def as_torch(columns: Columns, *, device: str = "cpu") -> Columns:
    """Return the columns as tensors; tensors on the device `meta` hold no data, so reading one raises."""
    return replace(
        columns,
        by_name={name: torch.from_numpy(array).to(device) for name, array in columns.items()},
        histograms={pair: torch.from_numpy(counts).to(device) for pair, counts in columns.histograms.items()},
    )


def with_columns(columns: Columns, added: dict[str, Any]) -> Columns:
    """Return the columns with some added or replaced."""
    return replace(columns, by_name={**columns.by_name, **added})


def filled_with(columns: Columns, number: float) -> Columns:
    """Return the columns with every float column filled with the number."""
    floats = {name: np.full_like(array, number) for name, array in columns.items() if array.dtype.kind == "f"}
    return with_columns(columns, floats)


def with_kl(columns: Columns, max_kl: list[float], *, kl_is: Any = "exact", kl_pair: Any = "total") -> Columns:
    """Return the columns with a KL from logits, where the sum of a sequence equals its maximum."""
    kl = {"max_kl": np.array(max_kl, np.float32), "sum_kl": np.array(max_kl, np.float64)}
    return replace(with_columns(columns, kl), kl_is=kl_is, kl_pair=kl_pair)
