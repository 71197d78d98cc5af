"""The warm start: supervised steps until the policy is exact often enough to learn from its own reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from trmon.lab.grpo.mismatched_engine import CLEAN, MismatchedEngine
from trmon.lab.grpo.tasks import TaskPrompts, TokenTask, score_answers
from trmon.lab.grpo.token_policy import Architecture, TokenPolicy, load_imbalance, seeded_policy

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
        generator = torch.Generator().manual_seed(PROMPTS_SEED + 1)
        engine = MismatchedEngine(policy, limit=self._task.response_limit, generator=generator)
        sampled = engine.sample(self._prompts, copies=1, mismatch=CLEAN, update=0)
        scores = score_answers(sampled.tokens, sampled.mask, prompts=sampled.prompts)
        return EvaluatedPolicy(scores.reward.mean().item(), scores.exact.float().mean().item())


BATCH = 64
BALANCE = 0.05
EVALUATE_EVERY = 20
MAX_STEPS = 4000


@dataclass(frozen=True, eq=False)
class SupervisedStart:
    """The weights that a run starts from, and their share of exact answers."""

    weights: dict[str, Tensor]
    exact: float


@lru_cache(maxsize=64)
def supervised_start(
    task: TokenTask, architecture: Architecture, *, experts_per_token: int, seed: int, exact: float
) -> SupervisedStart:
    """Return a policy trained on right answers until a share `exact` of its sampled ones is right; 0: untrained.

    Cached in the process: runs that are compared start alike.
    """
    policy = seeded_policy(architecture, n_symbols=task.n_symbols, experts_per_token=experts_per_token, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=architecture.start_learning_rate, foreach=True)
    evaluation, steps, reached = CleanEvaluation(task), 0, 0.0
    while reached < exact and steps < MAX_STEPS:
        for _ in range(EVALUATE_EVERY):
            _imitate(policy, optimizer, task.draw(BATCH, generator=generator))
        steps += EVALUATE_EVERY
        reached = evaluation.evaluate(policy).exact
    return SupervisedStart(policy.copied_weights(), exact=reached)


def _imitate(policy: TokenPolicy, optimizer: torch.optim.Optimizer, prompts: TaskPrompts) -> None:
    scored = policy.score(prompts.tokens, prompts.answers)
    mask = prompts.answer_mask
    loss = -scored.logprobs[mask].mean()
    if scored.routing is not None:
        loss = loss + BALANCE * load_imbalance(scored.routing[mask])
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
