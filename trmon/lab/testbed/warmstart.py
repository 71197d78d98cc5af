"""The warm start: supervised steps until the policy is right often enough to learn from its own reward."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from trmon.lab.testbed.injection import Fault
from trmon.lab.testbed.policy import N_EXPERTS, PolicyNetwork, Weights, new_policy
from trmon.lab.testbed.rollout import RolloutEngine
from trmon.lab.testbed.task import Prompts, draw_prompts, score_responses

TARGET_EXACT = 0.35
LEARNING_RATE = 1e-2
BATCH = 64
BALANCE = 0.05
"""Weight of the load-balancing loss; without it, one expert gets nearly every token."""
EXAMINE_EVERY = 10
N_EXAMINED = 256
MAX_STEPS = 2000


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The start of a run: the weights, their share of exact sampled answers, and the cost of the warm start."""

    weights: Weights
    exact: float
    steps: int
    seconds: float


@cache
def warm_start(seed: int) -> WarmStart:
    """Return the warm start of a seed; cached per process, so that compared runs start alike."""
    started = time.perf_counter()
    policy = new_policy(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    steps, exact = 0, 0.0
    while exact < TARGET_EXACT and steps < MAX_STEPS:
        for _ in range(EXAMINE_EVERY):
            _imitate(policy, optimizer, draw_prompts(BATCH, generator=generator))
        steps += EXAMINE_EVERY
        exact = _examine(policy, generator)
    return WarmStart(policy.weights(), exact=exact, steps=steps, seconds=time.perf_counter() - started)


def _imitate(policy: PolicyNetwork, optimizer: torch.optim.Optimizer, prompts: Prompts) -> None:
    scored = policy.score(prompts, prompts.answers.masked_fill(~prompts.mask, 0))
    loss = -scored.logprobs[prompts.mask].mean() + BALANCE * _imbalance(scored.routing[prompts.mask])
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def _imbalance(routing: Tensor) -> Tensor:
    """Return N_EXPERTS * sum_e share_e * mean probability_e of routing [n, N_EXPERTS]: 1 when balanced.

    Source: Fedus et al. 2021, "Switch Transformers", equation 4.
    """
    share = torch.nn.functional.one_hot(routing.argmax(dim=-1), N_EXPERTS).float().mean(dim=0)
    return N_EXPERTS * (share * routing.softmax(dim=-1).mean(dim=0)).sum()


def _examine(policy: PolicyNetwork, generator: torch.Generator) -> float:
    engine = RolloutEngine(generator=generator)
    engine.load(policy.weights(), version=0)
    rollout = engine.generate(draw_prompts(N_EXAMINED, generator=generator), fault=Fault())
    return score_responses(rollout.tokens, to=rollout.prompts).exact.float().mean().item()
