"""Differences within pairs, with bootstrap intervals over pairs, as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from trmon_research.soft_masking.pair_arms import ARMS, PairOutcome

REPLICATES = 20_000
REFERENCE = "hard"


def table(pairs: Sequence[PairOutcome]) -> str:
    """Return one row an arm: its rewards, and what they differ by from hard masking at the same bound."""
    head = (
        "| arm | beyond the bound | mean weight | end reward | minus hard, end (95%) | minus hard, all updates (95%) |"
    )
    rows = [_row(pairs, arm) for arm in ARMS]
    return "\n".join([head, f"|{'---|' * 6}", *rows])


def _row(pairs: Sequence[PairOutcome], name: str) -> str:
    arms = [pair.arms[name] for pair in pairs]
    shares = f"{fmean(arm.beyond_bound for arm in arms):.1%} | {fmean(arm.mean_weight for arm in arms):.3f}"
    if name == REFERENCE:
        return f"| {name} | {shares} | {fmean(arm.end_reward for arm in arms):.4f} | - | - |"
    ends = [pair.arms[name].end_reward - pair.arms[REFERENCE].end_reward for pair in pairs]
    means = [pair.arms[name].mean_reward - pair.arms[REFERENCE].mean_reward for pair in pairs]
    reward = fmean(arm.end_reward for arm in arms)
    return f"| {name} | {shares} | {reward:.4f} | {_interval(ends)} | {_interval(means)} |"


def _interval(differences: Sequence[float]) -> str:
    """Return the mean with the percentile interval of the bootstrap."""
    values = np.array(differences)
    drawn = np.random.default_rng(0).integers(len(values), size=(REPLICATES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return f"{values.mean():+.4f} ({low:+.4f} to {high:+.4f})"
