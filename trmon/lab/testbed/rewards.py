"""The rewards of a rollout and the advantages that the learner makes of them, with the faults on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.testbed.injection import Fault
from trmon.lab.testbed.rollout import Rollout
from trmon.lab.testbed.task import score_responses

SMALLEST_STD = 1e-6


@dataclass(frozen=True, eq=False)
class Rewards:
    """The reported rewards of B sequences, the advantages that the learner trains on, and the groups, all [B]."""

    rewards: Tensor
    exact: Tensor
    advantages: Tensor
    group_ids: Tensor


def judge_rollout(rollout: Rollout, *, n_responses: int, fault: Fault, generator: torch.Generator) -> Rewards:
    """Return the rewards of a rollout; n_responses sequences in a row answer one prompt."""
    scores = score_responses(rollout.tokens, to=rollout.prompts, said=rollout.mask)
    rewards = _with_nan(scores.reward, share=fault.nan_share, generator=generator)
    advantages = group_advantages(rewards, n_responses=n_responses)
    group_ids = torch.arange(len(rewards)) // n_responses
    if fault.negated_share:
        is_negated = torch.rand(len(rewards) // n_responses, generator=generator) < fault.negated_share
        advantages = torch.where(is_negated[group_ids], -advantages, advantages)
    return Rewards(rewards=rewards, exact=scores.exact, advantages=advantages, group_ids=group_ids)


def _with_nan(rewards: Tensor, *, share: float, generator: torch.Generator) -> Tensor:
    if not share:
        return rewards
    return rewards.masked_fill(torch.rand(len(rewards), generator=generator) < share, torch.nan)


def group_advantages(rewards: Tensor, *, n_responses: int) -> Tensor:
    """Return rewards [B] minus their group's mean, over its standard deviation; 0 in a group of equal rewards.

    Source: Shao et al. 2024, "DeepSeekMath", section 4.1.
    """
    groups = rewards.view(-1, n_responses)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, correction=0, keepdim=True) + SMALLEST_STD)).flatten()
