"""The warm start: supervised steps until the policy is exact often enough to learn from its own reward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from trmon.lab.grpo.clean_evaluation import CleanEvaluation
from trmon.lab.grpo.models.expert_layer import load_imbalance
from trmon.lab.grpo.models.token_policy import Architecture, TokenPolicy, seeded_policy
from trmon.lab.grpo.tasks.task_families import TASK_FAMILIES
from trmon.lab.grpo.tasks.token_task import TaskPrompts

LEARNING_RATES = {Architecture.GRU: 5e-3, Architecture.TRANSFORMER: 2e-3, Architecture.MOE: 5e-3}
BATCH = 64
BALANCE = 0.05
EVALUATE_EVERY = 20
MAX_STEPS = 4000


@dataclass(frozen=True, eq=False)
class SupervisedStart:
    """The weights that a run starts from, their share of exact answers, and the steps it took."""

    weights: dict[str, Tensor]
    exact: float
    steps: int


@lru_cache(maxsize=64)
def supervised_start(
    task_name: str, architecture: Architecture, *, experts_per_token: int, seed: int, exact: float
) -> SupervisedStart:
    """Return a policy trained on right answers until a share `exact` of its sampled ones is right; 0: untrained.

    Cached in the process: runs that are compared start alike.
    """
    task = TASK_FAMILIES[task_name]
    policy = seeded_policy(architecture, n_symbols=task.n_symbols, experts_per_token=experts_per_token, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATES[architecture], foreach=True)
    evaluation, steps, reached = CleanEvaluation(task), 0, 0.0
    while reached < exact and steps < MAX_STEPS:
        for _ in range(EVALUATE_EVERY):
            _imitate(policy, optimizer, task.draw(BATCH, generator=generator))
        steps += EVALUATE_EVERY
        reached = evaluation.evaluate(policy).exact
    return SupervisedStart(policy.copied_weights(), exact=reached, steps=steps)


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
