"""Tasks: their answers are right, their prompts lie where policies expect them, and rewards are verified."""

from __future__ import annotations

import pytest
import torch

from tests.lab.grpo.experiments import TASK, check_layout, drawn_symbols
from trmon.lab.grpo.tasks import EOS, TaskPrompts, build_prompts, score_answers


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
