"""PPO's clipped surrogate loss, in which rejected sequences get no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from trmon.lab.testbed.batch import Batch
from trmon.lab.testbed.config import Anchor, LabConfig
from trmon.lab.testbed.monitor_port import DecisionPort


def clipped_loss(batch: Batch, logprobs: Tensor, *, decision: DecisionPort, config: LabConfig) -> Tensor:
    """Return PPO's clipped loss, a mean over tokens then sequences; a rejected sequence counts but gets no gradient.

    Args: logprobs: the learner's, [B, T], with gradients.
    """
    anchor = batch.old_logprobs
    if config.anchor is Anchor.ROLLOUT:
        anchor = decision.clean(batch.rollout_logprobs, logprobs)
    mask, advantages = batch.mask, batch.advantages[:, None]
    ratio = torch.where(mask, logprobs - anchor, 0.0).exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    per_sequence = -torch.where(mask, gain, 0.0).sum(dim=1) / mask.sum(dim=1)
    weights = decision.sequence_weights
    return torch.where(weights > 0, per_sequence * weights, 0.0).sum() / len(batch)


def entropy_bonus(batch: Batch, entropy: Tensor, *, coefficient: float) -> Tensor:
    """Return the part of the loss that rewards entropy [B, T], a mean over tokens."""
    return -coefficient * entropy[batch.mask].mean()
