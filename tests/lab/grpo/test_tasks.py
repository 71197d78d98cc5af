"""Tasks: their answers are right, their prompts lie where policies expect them, and rewards are verified."""

from __future__ import annotations

import pytest
import torch

from trmon.lab.grpo.tasks import (
    EOS,
    KINDS,
    TASK_FAMILIES,
    TaskPrompts,
    TokenTask,
    build_prompts,
    score_answers,
)


def _drawn(task: TokenTask, n: int = 64) -> list[tuple[list[int], list[int]]]:
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


def test_sorted_answers_hold_the_symbols_of_the_prompt_in_order() -> None:
    assert all(answer == sorted(prompt) for prompt, answer in _drawn(TASK_FAMILIES["sort"]))


def test_sums_are_those_of_the_numbers_modulo_a_power_of_ten() -> None:
    for prompt, answer in _drawn(TASK_FAMILIES["add"]):
        first, second, total = (
            sum((symbol - 1) * 10**place for place, symbol in enumerate(symbols))
            for symbols in (prompt[0::2], prompt[1::2], answer)
        )
        assert total == (first + second) % 10 ** len(answer)
        assert len(prompt) == 2 * len(answer)


def test_closing_brackets_complete_the_beginning() -> None:
    for prompt, answer in _drawn(TASK_FAMILIES["brackets"]):
        stack = []
        for symbol in prompt + answer:
            if symbol <= KINDS:
                stack.append(symbol)
            else:
                assert stack.pop() == symbol - KINDS
        assert stack == []


@pytest.mark.parametrize("name", TASK_FAMILIES)
def test_prompts_end_alike_and_answers_fit_the_limit_with_room(name: str) -> None:
    task = TASK_FAMILIES[name]
    drawn = task.draw(64, generator=torch.Generator().manual_seed(1))
    assert drawn.tokens.shape == (64, task.prompt_length)
    assert drawn.answers.shape == (64, task.response_limit)
    assert set(drawn.tokens[:, -1].tolist()) == {task.n_symbols + 2}
    assert drawn.answer_lengths.max() < task.response_limit
    assert len(set(drawn.answer_lengths.tolist())) > 1


def _scored(response: list[int], *, length: int) -> tuple[float, bool]:
    task = TASK_FAMILIES["sort"]
    asked: TaskPrompts = build_prompts([([3, 1, 2], [1, 2, 3])], task=task)
    tokens = torch.full((1, task.response_limit), EOS)
    tokens[0, : len(response)] = torch.tensor(response)
    mask = torch.arange(task.response_limit)[None] < length
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
    drawn = TASK_FAMILIES["sort"].draw(2, generator=torch.Generator().manual_seed(0)).repeat(3)
    assert len(drawn.tokens) == 6
    assert drawn.tokens[0].equal(drawn.tokens[2])
    assert not drawn.tokens[2].equal(drawn.tokens[3])
