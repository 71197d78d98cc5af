"""Batches: advantages within groups, and rows that stay together."""

from __future__ import annotations

import pytest
import torch

from trmon.lab.testbed.batch import Batch
from trmon.lab.testbed.injection import Fault
from trmon.lab.testbed.policy import new_policy
from trmon.lab.testbed.rewards import group_advantages, judge_rollout
from trmon.lab.testbed.rollout import RolloutEngine
from trmon.lab.testbed.task import draw_prompts

ADVANTAGES = [
    ("equal rewards have no advantage", [0.5, 0.5], [0.0, 0.0]),
    ("two rewards are one deviation from their mean", [1.0, 0.0], [1.0, -1.0]),
    ("each group is judged by itself", [1.0, 0.0, 0.3, 0.3], [1.0, -1.0, 0.0, 0.0]),
    ("the scale of a group's rewards does not matter", [0.2, 0.1, 1.0, 0.0], [1.0, -1.0, 1.0, -1.0]),
]


@pytest.mark.parametrize(("sentence", "rewards", "expected"), ADVANTAGES, ids=[case[0] for case in ADVANTAGES])
def test_advantages_are_normalised_within_groups(sentence: str, rewards: list[float], expected: list[float]) -> None:
    assert group_advantages(torch.tensor(rewards), n_responses=2).tolist() == pytest.approx(expected, abs=1e-4)


def _batch() -> Batch:
    engine = RolloutEngine(generator=torch.Generator().manual_seed(1))
    policy = new_policy(0)
    engine.load(policy.weights(), version=3)
    prompts = draw_prompts(4, generator=torch.Generator().manual_seed(2)).repeat(8)
    rollout = engine.generate(prompts, fault=Fault())
    with torch.no_grad():
        scored = policy.score(prompts, rollout.tokens)
    rewards = judge_rollout(rollout, n_responses=8, fault=Fault(), generator=torch.Generator())
    return Batch.of(rollout, learner=scored, rewards=rewards)


def test_responses_to_one_prompt_are_one_group() -> None:
    batch = _batch()
    for group in range(4):
        assert len(batch.prompts.tokens[batch.group_ids == group].unique(dim=0)) == 1


def test_rows_keep_everything_that_belongs_to_them() -> None:
    batch = _batch()
    rows = torch.tensor([9, 2])
    part = batch[rows]
    assert len(part) == 2
    assert torch.equal(part.prompts.tokens, batch.prompts.tokens[rows])
    assert torch.equal(part.rollout_logprobs, batch.rollout_logprobs[rows])
    assert part.group_ids.tolist() == [1, 0]


def test_flips_under_the_mask_do_not_count() -> None:
    batch = _batch()
    batch.flips[:] = ~batch.prompts.mask
    assert batch.router_flip_rate == 0.0
    batch.flips[:] = batch.prompts.mask
    assert batch.router_flip_rate == 1.0
