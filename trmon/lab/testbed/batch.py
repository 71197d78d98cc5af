"""A rollout as the learner trains on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trmon.lab.testbed.policy import ScoredResponses
from trmon.lab.testbed.rewards import Rewards
from trmon.lab.testbed.rollout import Rollout
from trmon.lab.testbed.task import Prompts


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences: the sampled tokens, mu and pi_old, and `flips`, true where a token met another expert in training
    than in the rollout, all [B, T], valid where `mask` is true; the reward and the group of each sequence, [B];
    `truncated` [B] where the rollout engine has a limit of tokens.
    """

    prompts: Prompts
    tokens: Tensor
    mask: Tensor
    rollout_logprobs: Tensor
    old_logprobs: Tensor
    flips: Tensor
    versions: Tensor
    rewards: Tensor
    exact: Tensor
    advantages: Tensor
    group_ids: Tensor
    truncated: Tensor | None

    @classmethod
    def of(cls, rollout: Rollout, *, learner: ScoredResponses, rewards: Rewards) -> Batch:
        """Return the batch of a rollout, the learner's outputs and the rewards."""
        return cls(
            prompts=rollout.prompts,
            tokens=rollout.tokens,
            mask=rollout.mask,
            rollout_logprobs=rollout.logprobs,
            old_logprobs=learner.logprobs,
            flips=learner.experts != rollout.experts,
            versions=rollout.versions,
            rewards=rewards.rewards,
            exact=rewards.exact,
            advantages=rewards.advantages,
            group_ids=rewards.group_ids,
            truncated=rollout.truncated,
        )

    @property
    def router_flip_rate(self) -> float:
        """Return the share of tokens that met another expert in training than in the rollout."""
        return self.flips[self.mask].float().mean().item()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> Batch:
        """Return the given rows [n] as a batch."""
        picked: dict[str, Any] = {name: value if value is None else value[rows] for name, value in vars(self).items()}
        return Batch(**picked)
