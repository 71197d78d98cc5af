"""What a trainer would have logged of a stored run, one step at a time.

A step is logged at the end of its update: its row of the file, and nothing of a later one. Approximations that hold for
each monitor:

- There is no reference policy, so no KL to one. In its place stands the KL of the updated policy to the policy before
  the update (k3, on the last minibatch), which frameworks log as `approx_kl` or `actor/ppo_kl`.
- The standard deviation of advantages is not stored. GRPO divides each group's by their own, so that of the batch is
  the square root of the share of groups whose rewards differ.
- The entropy is that of the rollout engine, estimated from its samples, not from full distributions.
- The standard deviation of rewards is over the whole batch.
- Values have 8 significant bits, as in the stored files. The loss, rewards and texts of single responses, and times are
  not stored; checks of them stay silent.
- The clean evaluation, from which the labels come, is given to no monitor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

KL_COLUMN = "staleness_kl_k3"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """The metrics of one update; None where the run has no value. KL and entropy in nats a token, lengths in tokens."""

    step: int
    grad_norm: float
    """Before clipping; it may be NaN or infinite."""
    reward_mean: float | None
    reward_std: float | None
    zero_variance_share: float | None
    advantage_std: float | None
    entropy: float | None
    kl: float | None
    learning_rate: float | None
    clip_fraction: float | None
    response_length: float | None
    truncated_share: float | None


def logged_steps(columns: Mapping[str, npt.NDArray[Any]]) -> Iterator[LoggedStep]:
    """Yield the steps of a run in their order. Args: columns: those of its file, by name."""
    for row, update in enumerate(columns["update"].tolist()):
        zero_variance_share = _value(columns, "zero_variance_groups", row)
        yield LoggedStep(
            step=update,
            grad_norm=float(columns["grad_norm"][row]),
            reward_mean=_value(columns, "reward_mean", row),
            reward_std=_value(columns, "reward_std", row),
            zero_variance_share=zero_variance_share,
            advantage_std=None if zero_variance_share is None else math.sqrt(1 - min(1.0, zero_variance_share)),
            entropy=_value(columns, "sampled_entropy", row),
            kl=_value(columns, KL_COLUMN, row),
            learning_rate=_value(columns, "lr", row),
            clip_fraction=_value(columns, "clip_fraction", row),
            response_length=_value(columns, "response_length_mean", row),
            truncated_share=_value(columns, "length_limit_share", row),
        )


def _value(columns: Mapping[str, npt.NDArray[Any]], name: str, row: int) -> float | None:
    if name not in columns:
        return None
    value = float(columns[name][row])
    return None if math.isnan(value) else value
