"""Small experiments for tests: untrained policies, few updates."""

from __future__ import annotations

from typing import Any

import torch

from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig
from trmon.lab.grpo.mismatched_engine import CLEAN, MismatchedEngine, SampledResponses
from trmon.lab.grpo.tasks import TASK_FAMILIES, TaskPrompts, TokenTask
from trmon.lab.grpo.token_policy import ARCHITECTURES, Architecture, TokenPolicy, TokenTrunk, seeded_policy

TASK = TASK_FAMILIES["sort"]
MOE = ARCHITECTURES["moe"]


def small(**changed: Any) -> ExperimentConfig:
    """Return an experiment of a few updates on an untrained policy."""
    usual: dict[str, Any] = {
        "task": "sort",
        "architecture": "moe",
        "mechanism": "healthy",
        "seed": 3,
        "warm_start_exact": 0.0,
        "n_updates": 4,
        "n_prompts": 4,
        "n_responses": 4,
    }
    return ExperimentConfig(**usual | changed)


def policy(architecture: Architecture = MOE, *, k: int = 1, seed: int = 1) -> TokenPolicy:
    """Return an untrained policy whose outputs are not flat, so that precision and routing matter."""
    made = seeded_policy(architecture, n_symbols=TASK.n_symbols, experts_per_token=k, seed=seed)
    with torch.no_grad():
        made.head.weight.mul_(6.0)
    return made


def prompts(n: int = 16, *, seed: int = 0) -> TaskPrompts:
    return TASK.draw(n, generator=torch.Generator().manual_seed(seed))


def engine(architecture: Architecture = MOE, *, k: int = 1, seed: int = 5) -> MismatchedEngine:
    """Return a rollout engine for policies of an architecture, without weights."""
    generator = torch.Generator().manual_seed(seed)
    return MismatchedEngine(policy(architecture, k=k, seed=9), limit=TASK.response_limit, generator=generator)


def check_reads_alike(trunk: TokenTrunk) -> None:
    """Assert that a trunk's features of tokens read one by one are those of reading them at once."""
    asked = prompts(3).tokens
    said = torch.randint(1, 10, (6, 5), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, cache = trunk.read_prompt(asked, copies=2)
        one_by_one = [features]
        for column in said.T:
            features, cache = trunk.read_next(column, cache)
            one_by_one.append(features)
        at_once = trunk.read_all(torch.cat([asked.repeat_interleave(2, dim=0), said], dim=1))
    torch.testing.assert_close(torch.stack(one_by_one, dim=1), at_once[:, asked.shape[1] - 1 :], atol=1e-5, rtol=1e-4)


def sampled(
    mismatch: EngineMismatch = CLEAN, *, architecture: Architecture = MOE, k: int = 1, n: int = 32
) -> tuple[SampledResponses, torch.Tensor]:
    """Return responses, and d = log pi_old - log mu of their tokens, 0 where none counts."""
    learner, rollout = policy(architecture, k=k), engine(architecture, k=k)
    rollout.load(learner.copied_weights(), version=7, weight_format=mismatch.weight_format)
    responses = rollout.sample(prompts(n), copies=4, mismatch=mismatch, update=0)
    with torch.no_grad():
        scored = learner.score(responses.prompts.tokens, responses.tokens)
    return responses, torch.where(responses.mask, scored.logprobs - responses.logprobs, 0.0)


def drawn_symbols(task: TokenTask, n: int = 64) -> list[tuple[list[int], list[int]]]:
    """Return prompts and answers as symbols, without padding, separator and EOS."""
    drawn = task.draw(n, generator=torch.Generator().manual_seed(0))
    return [
        (
            [token for token in tokens[:-1] if token <= task.n_symbols],
            answers[: length - 1],
        )
        for tokens, answers, length in zip(
            drawn.tokens.tolist(), drawn.answers.tolist(), drawn.answer_lengths.tolist(), strict=True
        )
    ]


def check_layout(task: TokenTask) -> None:
    """Assert that prompts of a task end alike and that answers fit the limit with room."""
    drawn = task.draw(64, generator=torch.Generator().manual_seed(1))
    assert drawn.tokens.shape == (64, task.prompt_length)
    assert drawn.answers.shape == (64, task.response_limit)
    assert set(drawn.tokens[:, -1].tolist()) == {task.n_symbols + 2}
    assert drawn.answer_lengths.max() < task.response_limit
    assert len(set(drawn.answer_lengths.tolist())) > 1
