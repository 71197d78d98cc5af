"""What the learner trains on: the sampled responses, the training engine's log-probs, rewards and advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.grpo.grpo_loss import grpo_advantages
from trmon.lab.grpo.mismatched_engine import SampledResponses
from trmon.lab.grpo.models.expert_layer import N_EXPERTS
from trmon.lab.grpo.models.token_policy import ResponseScores
from trmon.lab.grpo.tasks.token_task import score_answers
from trmon_client import moe


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
    sampled: SampledResponses, old: ResponseScores, *, n_responses: int, length_bonus: float
) -> RolloutBatch:
    """Return the batch of a rollout. Args: old: the training engine's view of it before the updates."""
    scores = score_answers(sampled.tokens, sampled.mask, prompts=sampled.prompts)
    lengths = sampled.mask.sum(dim=1) / sampled.mask.shape[1]
    rewards = scores.reward + length_bonus * lengths
    return RolloutBatch(
        sampled=sampled,
        old_logprobs=old.logprobs,
        rewards=rewards,
        advantages=grpo_advantages(rewards, n_responses=n_responses),
        group_ids=torch.arange(len(rewards), device=rewards.device) // n_responses,
        exact=scores.exact.float().mean().item(),
        routing=_routing_scalars(sampled, old),
    )


def _routing_scalars(sampled: SampledResponses, old: ResponseScores) -> dict[str, float]:
    if sampled.experts is None or old.experts is None:
        return {}
    rollout, train = sampled.experts.unsqueeze(-2), old.experts.unsqueeze(-2)
    found = moe.flips(rollout, train, mask=sampled.mask)
    return found.scalars() | {"max_vio": moe.max_vio(train, n_experts=N_EXPERTS, mask=sampled.mask)}
