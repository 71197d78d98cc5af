"""Clean evaluation: what the training engine's policy earns by the verifier alone, whatever the rollouts look like."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from trmon.lab.grpo.mismatched_engine import CLEAN, MismatchedEngine
from trmon.lab.grpo.models.token_policy import TokenPolicy
from trmon.lab.grpo.tasks.token_task import TokenTask, score_answers

N_EVALUATED = 256
PROMPTS_SEED = 987_654_321
"""All runs of a task are evaluated on the same prompts."""


@dataclass(frozen=True, slots=True)
class EvaluatedPolicy:
    """The mean verified reward and the share of exact answers of one sampled response to each prompt."""

    reward: float
    exact: float


NOT_EVALUATED = EvaluatedPolicy(math.nan, math.nan)


class CleanEvaluation:
    """Evaluates a policy on 256 fixed prompts at temperature 1 in float32; equal weights give equal values."""

    def __init__(self, task: TokenTask) -> None:
        self._task = task
        self._prompts = task.draw(N_EVALUATED, generator=torch.Generator().manual_seed(PROMPTS_SEED))

    def evaluate(self, policy: TokenPolicy) -> EvaluatedPolicy:
        """Return the evaluation of a policy, which it leaves as it is."""
        generator = torch.Generator(policy.device).manual_seed(PROMPTS_SEED + 1)
        engine = MismatchedEngine(policy, limit=self._task.response_limit, generator=generator)
        sampled = engine.sample(self._prompts.to(policy.device), copies=1, mismatch=CLEAN, update=0)
        scores = score_answers(sampled.tokens, sampled.mask, prompts=sampled.prompts)
        return EvaluatedPolicy(scores.reward.mean().item(), scores.exact.float().mean().item())
