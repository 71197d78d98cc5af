"""GRPO's advantages and PPO's clipped loss, against loops over plain numbers; tasks and configurations."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import msgspec
import pytest
import torch
from torch import Tensor

from tests.lab.grpo.experiments import TASK, check_layout, drawn_symbols, small
from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig, Ramp, WeightFormat, constant
from trmon.lab.grpo.rollout_batch import SMALLEST_STD, grpo_advantages, ppo_clip_loss
from trmon.lab.grpo.tasks import EOS, TaskPrompts, build_prompts, score_answers


def test_advantages_are_rewards_normalised_in_their_group() -> None:
    rewards = torch.rand(12, generator=torch.Generator().manual_seed(0))
    groups = [rewards[start : start + 4].tolist() for start in (0, 4, 8)]
    expected = [(reward - fmean(group)) / (pstdev(group) + SMALLEST_STD) for group in groups for reward in group]
    assert grpo_advantages(rewards, n_responses=4).tolist() == pytest.approx(expected, abs=1e-5)


def test_a_group_of_equal_rewards_has_no_advantage() -> None:
    assert grpo_advantages(torch.full((4,), 0.25), n_responses=4).tolist() == [0.0] * 4


def _reference(
    logprobs: list[list[float]], old: list[list[float]], advantages: list[float], lengths: list[int]
) -> float:
    losses = []
    for row, before, advantage, length in zip(logprobs, old, advantages, lengths, strict=True):
        gains = []
        for new, was in list(zip(row, before, strict=True))[:length]:
            ratio = math.exp(new - was)
            gains.append(min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage))
        losses.append(-fmean(gains))
    return fmean(losses)


def test_the_loss_is_ppos_over_tokens_then_sequences() -> None:
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand((5, 6), generator=generator)
    logprobs = old + 0.4 * torch.randn((5, 6), generator=generator)
    advantages, lengths = torch.randn(5, generator=generator), torch.tensor([1, 6, 3, 4, 2])
    mask = torch.arange(6) < lengths[:, None]
    loss = ppo_clip_loss(logprobs, old, advantages=advantages, mask=mask, clip=0.2, weights=torch.ones(5))
    expected = _reference(logprobs.tolist(), old.tolist(), advantages.tolist(), lengths.tolist())
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def _gradient(
    logprobs: Tensor, *, advantages: Tensor, weights: Tensor, reference: float = -1.0, mask: Tensor | None = None
) -> Tensor:
    """Return the gradient at log-probs [B, L] beside one reference; by default every token counts."""
    logprobs.requires_grad_()
    mask = torch.ones_like(logprobs, dtype=torch.bool) if mask is None else mask
    old = torch.full_like(logprobs, reference)
    torch.autograd.backward(ppo_clip_loss(logprobs, old, advantages=advantages, mask=mask, clip=0.2, weights=weights))
    return logprobs.grad


def test_rejected_sequences_and_masked_tokens_have_no_gradient() -> None:
    mask = torch.ones((3, 4), dtype=torch.bool)
    mask[2, 2:] = False
    given = {"advantages": torch.ones(3), "weights": torch.tensor([0.0, 1.0, 1.0]), "mask": mask}
    gradient = _gradient(torch.full((3, 4), -1.0), **given)
    assert gradient[0].abs().sum() == 0
    assert gradient[2, 2:].abs().sum() == 0
    assert (gradient[1] < 0).all()


def test_a_weight_scales_the_gradient_of_its_sequence() -> None:
    whole, scaled = (
        _gradient(torch.full((2, 3), -1.0), advantages=torch.tensor([1.0, -1.0]), weights=torch.tensor([1.0, weight]))
        for weight in (1.0, 0.25)
    )
    torch.testing.assert_close(scaled, whole * torch.tensor([[1.0], [0.25]]))


def test_a_clipped_token_has_no_gradient() -> None:
    logprobs = torch.tensor([[0.5, -0.5]])
    gradient = _gradient(logprobs, advantages=torch.ones(1), weights=torch.ones(1), reference=0.0)
    assert gradient[0, 0] == 0
    assert gradient[0, 1] < 0


def test_sorted_answers_hold_the_symbols_of_the_prompt_in_order() -> None:
    assert all(answer == sorted(prompt) for prompt, answer in drawn_symbols(TASK))


def test_prompts_end_alike_and_answers_fit_the_limit_with_room() -> None:
    check_layout(TASK)


def _scored(response: list[int], *, length: int) -> tuple[float, bool]:
    asked: TaskPrompts = build_prompts([([3, 1, 2], [1, 2, 3])], task=TASK)
    tokens = torch.full((1, TASK.response_limit), EOS)
    tokens[0, : len(response)] = torch.tensor(response)
    mask = torch.arange(TASK.response_limit)[None] < length
    scores = score_answers(tokens, mask, prompts=asked)
    return scores.reward.item(), bool(scores.exact.item())


def test_an_exact_answer_ends_with_eos() -> None:
    assert _scored([1, 2, 3, EOS], length=4) == (1.0, True)


def test_a_wrong_position_costs_its_share_and_the_half_for_exactness() -> None:
    assert _scored([1, 2, 9, EOS], length=4) == (pytest.approx(0.5 * 3 / 4), False)


def test_an_answer_without_eos_or_that_ends_early_is_not_exact() -> None:
    assert _scored([1, 2, 3, 4, 5], length=5) == (pytest.approx(0.5 * 3 / 5), False)
    assert _scored([1, EOS], length=2) == (pytest.approx(0.5 * 1 / 4), False)


def test_prompts_repeat_in_rows() -> None:
    drawn = TASK.draw(2, generator=torch.Generator().manual_seed(0)).repeat(3)
    assert len(drawn.tokens) == 6
    assert drawn.tokens[0].equal(drawn.tokens[2])
    assert not drawn.tokens[2].equal(drawn.tokens[3])


def test_a_ramp_moves_in_equal_steps_between_its_values() -> None:
    ramp = Ramp(1.0, 3.0, first_update=10, n_updates=4)
    assert [ramp.at(update) for update in (0, 9, 10, 11, 12, 13, 14, 99)] == [1.0, 1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0]
    assert constant(2.0).at(0) == constant(2.0).at(50) == 2.0


def test_the_weights_are_bfloat16_until_the_first_update_of_another_format() -> None:
    engine = EngineMismatch(weight_format=WeightFormat.INT3, first_update=5)
    assert [engine.format_at(update) for update in (4, 5)] == [WeightFormat.BFLOAT16, WeightFormat.INT3]


def test_a_configuration_survives_json_and_every_value_is_in_its_name() -> None:
    config = small(engine=EngineMismatch(lag=Ramp(0.0, 8.0, first_update=60, n_updates=100)))
    again = msgspec.json.decode(msgspec.json.encode(config), type=ExperimentConfig)
    assert again == config
    assert again.run_name == config.run_name
    assert len({config.run_name, small().run_name, small(seed=9).run_name, small(clip=0.3).run_name}) == 4
