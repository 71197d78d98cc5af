"""Small experiments for tests: untrained policies, few updates."""

from __future__ import annotations

from typing import Any

import torch

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.mismatched_engine import MismatchedEngine
from trmon.lab.grpo.tasks import TASK_FAMILIES, TaskPrompts
from trmon.lab.grpo.token_policy import Architecture, TokenPolicy, seeded_policy

TASK = TASK_FAMILIES["sort"]


def small(**changed: Any) -> ExperimentConfig:
    """Return an experiment of a few updates on an untrained policy."""
    usual: dict[str, Any] = {
        "task": "sort",
        "architecture": Architecture.MOE,
        "mechanism": "healthy",
        "seed": 3,
        "warm_start_exact": 0.0,
        "n_updates": 4,
        "n_prompts": 4,
        "n_responses": 4,
    }
    return ExperimentConfig(**usual | changed)


def policy(architecture: Architecture = Architecture.MOE, *, k: int = 1, seed: int = 1) -> TokenPolicy:
    """Return an untrained policy whose outputs are not flat, so that precision and routing matter."""
    made = seeded_policy(architecture, n_symbols=TASK.n_symbols, experts_per_token=k, seed=seed)
    with torch.no_grad():
        made.head.weight.mul_(6.0)
    return made


def prompts(n: int = 16, *, seed: int = 0) -> TaskPrompts:
    """Return n prompts of the task."""
    return TASK.draw(n, generator=torch.Generator().manual_seed(seed))


def engine(architecture: Architecture = Architecture.MOE, *, k: int = 1, seed: int = 5) -> MismatchedEngine:
    """Return a rollout engine for policies of an architecture, without weights."""
    generator = torch.Generator().manual_seed(seed)
    return MismatchedEngine(policy(architecture, k=k, seed=9), limit=TASK.response_limit, generator=generator)
