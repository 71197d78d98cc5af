"""GRPO: advantages within groups, and PPO's clipped objective."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_STD = 1e-6


def grpo_advantages(rewards: Tensor, *, n_responses: int) -> Tensor:
    """Return rewards [B] minus their group's mean, over its standard deviation; 0 in a group of equal rewards.

    Source: Shao et al. 2024, "DeepSeekMath", section 4.1.
    """
    groups = rewards.view(-1, n_responses)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, correction=0, keepdim=True) + SMALLEST_STD)).flatten()


def ppo_clip_loss(
    logprobs: Tensor, reference: Tensor, *, advantages: Tensor, mask: Tensor, clip: float, weights: Tensor
) -> Tensor:
    """Return PPO's clipped loss, a mean over tokens, then over all sequences; those of weight 0 get no gradient.

    Args: logprobs, reference, mask: [B, L]; advantages, weights (of the sequences, 1 where accepted): [B].
    """
    ratio = torch.where(mask, logprobs - reference, 0.0).exp()
    gains = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
    per_sequence = -torch.where(mask, gains, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return torch.where(weights > 0, per_sequence * weights, 0.0).sum() / len(weights)
