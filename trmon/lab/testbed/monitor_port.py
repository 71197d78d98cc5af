"""The port to the monitor: the parts of `trmon_client` that the lab's trainer uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class DecisionPort(Protocol):
    """The decision on B sequences."""

    @property
    def mask(self) -> Tensor:
        """True for the sequences that stay in the loss, [B]; all true if the monitor only observes."""

    @property
    def sequence_weights(self) -> Tensor:
        """The weight of each sequence in the loss, [B] float32: 0 or 1 as `mask` unless the policy is soft."""

    @property
    def mask_rate(self) -> float:
        """Share of the sequences that the policy rejects, whether or not they are masked."""

    @property
    def signals(self) -> Mapping[str, float]:
        """The signals of the sequences, by name."""

    def clean(self, rollout_logprobs: Tensor, logprobs: Tensor) -> Tensor:
        """Return the rollout log-probs [B, T], those of rejected sequences replaced by detached `logprobs`."""


class MonitorPort(Protocol):
    """The interface that a trainer reports to."""

    def log_batch(
        self,
        *,
        step: int,
        mask: Tensor,
        rollout_logprobs: Tensor,
        old_logprobs: Tensor,
        logprobs: Tensor,
        advantages: Tensor,
        rewards: Tensor,
        group_ids: Tensor,
        versions: Tensor,
        truncated: Tensor | None = None,
        trainer_version: int,
        old_version: int,
        update: int | None = None,
        chunks: int | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> DecisionPort:
        """Report B sequences and return the decision on them; `chunks` is the number of calls per (step, update)."""

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        """Report the trainer's own metrics of a step."""
