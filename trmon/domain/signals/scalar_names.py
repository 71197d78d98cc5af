"""Names of trainer scalars: which of them mean the mean reward, the entropy, the length, the loss and so on."""

from __future__ import annotations

import math
from collections.abc import Mapping

ALIASES: Mapping[str, tuple[str, ...]] = {
    "reward_mean": ("reward", "rewards", "mean_reward", "reward/mean", "rewards/mean", "critic/rewards/mean"),
    "entropy": ("mean_entropy", "policy_entropy", "actor/entropy"),
    "response_length_mean": (
        *("length", "response_length", "mean_length", "completion_length", "mean_response_length"),
        *("response_length/mean", "completions/mean_length"),
    ),
    "grad_norm": ("gradient_norm", "global_grad_norm", "actor/grad_norm", "train/grad_norm"),
    "loss": ("policy_loss", "pg_loss", "train_loss", "train/loss", "actor/pg_loss"),
    "lr": ("learning_rate", "actor/lr", "train/learning_rate"),
}
"""The other names under which trainers send a canonical scalar, in the order in which they are looked up."""


def canonical_value(name: str, *, signals: Mapping[str, float], scalars: Mapping[str, float]) -> float:
    """Return a canonical value of a row: the signal, else the scalar of that name, else the first known alias.

    Args: name: a key of ALIASES, or any other name, which has no aliases.
    Returns: NaN if the row has none of them. A signal that is NaN gives way to a scalar.
    """
    measured = signals.get(name, math.nan)
    if not math.isnan(measured):
        return measured
    found = next((alias for alias in (name, *ALIASES.get(name, ())) if alias in scalars), None)
    return measured if found is None else scalars[found]
