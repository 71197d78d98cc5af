"""Rewards of the responses to a batch of prompts, in the scale of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trmon_research.language_like.courses import RewardKind

Array = NDArray[Any]

DIFFICULTY_SD = 1.6
"""Of prompts, in log-odds."""


def chances(rng: np.random.Generator, skill: float, *, groups: tuple[int, int]) -> Array:
    """Return the chance of a success of each response, [prompts x responses], equal within a prompt."""
    prompts, each = groups
    odds = skill + DIFFICULTY_SD * rng.standard_normal(prompts)
    return np.repeat(1 / (1 + np.exp(-odds)), each)


def rewards_of(
    rng: np.random.Generator, kind: RewardKind, chance: Array, truncated: Array, *, progress: float
) -> Array:
    """Return the reward of each response; a truncated one fails. Args: progress: of the run, 0 to 1."""
    n = len(chance)
    chance = np.where(truncated, 0.0, chance)
    right = rng.random(n) < chance
    match kind:
        case "verifier":
            return right.astype(float)
        case "sign":
            return 2.0 * right - 1.0
        case "format":
            formatted = (rng.random(n) < 0.5 + 0.5 * min(1.0, 5 * progress)) & ~truncated
            return right + 0.2 * formatted
        case "dense":
            return rng.binomial(5, chance) / 5
        case "points":
            return rng.binomial(20, chance) * 5.0
        case "negative":
            return -2.0 * np.clip(1 - chance + 0.1 * rng.standard_normal(n), 0, 1)
        case "model":
            odds = np.log(np.clip(chance, 1e-3, 1 - 1e-3) / np.clip(1 - chance, 1e-3, 1 - 1e-3))
            return 0.8 * odds + 0.7 * rng.standard_normal(n) - 1.0


def mean_reward(kind: RewardKind, chance: Array, *, progress: float) -> float:
    """Return the mean that an evaluation over many prompts shows, without truncation."""
    rng = np.random.default_rng(0)
    return float(rewards_of(rng, kind, chance, np.zeros(len(chance), bool), progress=progress).mean())
