"""The learner's batch: responses, log-probs, rewards, advantages within groups, and PPO's clipped loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.grpo.experiment_config import ExperimentConfig, TrainingFaults
from trmon.lab.grpo.mismatched_engine import SampledResponses
from trmon.lab.grpo.tasks import score_answers
from trmon.lab.grpo.token_policy import N_EXPERTS, ResponseScores
from trmon_client import moe

NO_FAULTS = TrainingFaults()
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


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """B sequences: `sampled`; `old_logprobs` [B, L]; rewards that the learner sees, advantages and groups [B].

    `exact` is the share of exact answers; `routing` holds the scalars of how the training engine's experts differ from
    the rollout's and how evenly they are loaded, empty without experts.
    """

    sampled: SampledResponses
    old_logprobs: Tensor
    rewards: Tensor
    advantages: Tensor
    group_ids: Tensor
    exact: float
    routing: dict[str, float]

    def __len__(self) -> int:
        return len(self.rewards)


def build_batch(
    sampled: SampledResponses,
    old: ResponseScores,
    *,
    config: ExperimentConfig,
    update: int,
    generator: torch.Generator,
) -> RolloutBatch:
    """Return the batch of a rollout. Args: old: the training engine's view of it before the updates."""
    n_responses, faults = config.n_responses, config.faults or NO_FAULTS
    scores = score_answers(sampled.tokens, sampled.mask, prompts=sampled.prompts)
    lengths = sampled.mask.sum(dim=1) / sampled.mask.shape[1]
    rewards = scores.reward + config.length_bonus.at(update) * lengths
    rewards = rewards.masked_fill(_chosen(faults.nan_share.at(update), rewards, generator), torch.nan)
    advantages = grpo_advantages(rewards, n_responses=n_responses)
    is_negated = _chosen(faults.negated_share.at(update), rewards[::n_responses], generator)
    advantages = torch.where(is_negated.repeat_interleave(n_responses), -advantages, advantages)
    return RolloutBatch(
        sampled=sampled,
        old_logprobs=old.logprobs,
        rewards=rewards,
        advantages=advantages,
        group_ids=torch.arange(len(rewards)) // n_responses,
        exact=scores.exact.float().mean().item(),
        routing=_routing_scalars(sampled, old),
    )


def _chosen(share: float, of: Tensor, generator: torch.Generator) -> Tensor:
    """Return which of n values a fault meets, [n]; nothing is drawn where it meets none."""
    if not share:
        return torch.zeros(len(of), dtype=torch.bool)
    return torch.rand(len(of), generator=generator) < share


def _routing_scalars(sampled: SampledResponses, old: ResponseScores) -> dict[str, float]:
    if sampled.experts is None or old.experts is None:
        return {}
    rollout, train = sampled.experts.unsqueeze(-2), old.experts.unsqueeze(-2)
    found = moe.flips(rollout, train, mask=sampled.mask)
    return found.scalars() | {"max_vio": moe.max_vio(train, n_experts=N_EXPERTS, mask=sampled.mask)}
