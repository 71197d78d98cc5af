"""What the learner trains on: the sampled responses, the training engine's log-probs, rewards and advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.grpo.grpo_loss import grpo_advantages
from trmon.lab.grpo.mismatched_engine import SampledResponses
from trmon.lab.grpo.models.token_policy import ResponseScores
from trmon.lab.grpo.tasks.token_task import score_answers


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """B sequences: `sampled`; `old_logprobs` [B, L]; rewards that the learner sees, advantages and groups [B].

    `exact` is the share of exact answers, `router_flip_rate` that of the tokens which met other experts in the
    training engine than in the rollout, 0 without experts.
    """

    sampled: SampledResponses
    old_logprobs: Tensor
    rewards: Tensor
    advantages: Tensor
    group_ids: Tensor
    exact: float
    router_flip_rate: float

    def __len__(self) -> int:
        return len(self.rewards)


def build_batch(
    sampled: SampledResponses, old: ResponseScores, *, n_responses: int, length_bonus: float
) -> RolloutBatch:
    """Return the batch of a rollout. Args: old: the training engine's view of it before the updates."""
    scores = score_answers(sampled.tokens, sampled.mask, prompts=sampled.prompts)
    lengths = sampled.mask.sum(dim=1) / sampled.mask.shape[1]
    rewards = scores.reward + length_bonus * lengths
    flip_rate = 0.0
    if sampled.experts is not None and old.experts is not None:
        differs = sampled.experts.sort(dim=-1).values != old.experts.sort(dim=-1).values
        flip_rate = differs.any(dim=-1)[sampled.mask].float().mean().item()
    return RolloutBatch(
        sampled=sampled,
        old_logprobs=old.logprobs,
        rewards=rewards,
        advantages=grpo_advantages(rewards, n_responses=n_responses),
        group_ids=torch.arange(len(rewards)) // n_responses,
        exact=scores.exact.float().mean().item(),
        router_flip_rate=flip_rate,
    )
