"""A rollout as the learner trains on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.testbed.policy import ScoredResponses
from trmon.lab.testbed.rollout import Rollout
from trmon.lab.testbed.task import Prompts, score_responses

SMALLEST_STD = 1e-6


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences: the sampled tokens, mu and pi_old, and `flips`, true where a token met another expert in training
    than in the rollout, all [B, T]; the reward and the group of each sequence, [B].
    """

    prompts: Prompts
    tokens: Tensor
    rollout_logprobs: Tensor
    old_logprobs: Tensor
    flips: Tensor
    versions: Tensor
    rewards: Tensor
    exact: Tensor
    advantages: Tensor
    group_ids: Tensor

    @classmethod
    def of(cls, rollout: Rollout, *, learner: ScoredResponses, n_responses: int) -> Batch:
        """Return the batch of a rollout and the learner's outputs; n_responses sequences in a row answer one prompt."""
        scores = score_responses(rollout.tokens, to=rollout.prompts)
        return cls(
            prompts=rollout.prompts,
            tokens=rollout.tokens,
            rollout_logprobs=rollout.logprobs,
            old_logprobs=learner.logprobs,
            flips=learner.experts != rollout.experts,
            versions=rollout.versions,
            rewards=scores.reward,
            exact=scores.exact,
            advantages=group_advantages(scores.reward, n_responses=n_responses),
            group_ids=torch.arange(len(rollout.prompts)) // n_responses,
        )

    @property
    def router_flip_rate(self) -> float:
        """Return the share of tokens that met another expert in training than in the rollout."""
        return self.flips[self.prompts.mask].float().mean().item()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> Batch:
        """Return the given rows [n] as a batch."""
        picked = {name: value[rows] for name, value in vars(self).items()}
        return Batch(**picked)


def group_advantages(rewards: Tensor, *, n_responses: int) -> Tensor:
    """Return rewards [B] minus their group's mean, over its standard deviation; 0 in a group of equal rewards.

    Source: Shao et al. 2024, "DeepSeekMath", section 4.1.
    """
    groups = rewards.view(-1, n_responses)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, correction=0, keepdim=True) + SMALLEST_STD)).flatten()
