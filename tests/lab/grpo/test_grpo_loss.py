"""GRPO's advantages and PPO's clipped loss, against loops over plain numbers."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest
import torch
from torch import Tensor

from trmon.lab.grpo.rollout_batch import SMALLEST_STD, grpo_advantages, ppo_clip_loss


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
