"""The sorting task: prompts, answers, and a reward of which half is for an exact answer."""

from __future__ import annotations

import pytest
import torch

from trmon.lab.testbed.task import (
    MAX_LENGTH,
    MIN_LENGTH,
    N_SYMBOLS,
    PAD,
    SEPARATOR,
    draw_prompts,
    prompts,
    score_responses,
)


def _row(symbols: list[int], *, fill: int = 0) -> torch.Tensor:
    return torch.tensor([symbols + [fill] * (MAX_LENGTH - len(symbols))])


SIX = prompts(_row([5, 3, 11, 0, 3, 7]), torch.tensor([6]))

REWARDS = [
    ("the sorted symbols earn all of it", [0, 3, 3, 5, 7, 11], 1.0),
    ("one wrong symbol loses the half for exactness and its position", [0, 3, 3, 5, 7, 10], 0.5 * 5 / 6),
    ("two symbols in each other's place lose two positions", [3, 0, 3, 5, 7, 11], 0.5 * 4 / 6),
    ("a reversed answer earns nothing", [11, 7, 5, 3, 3, 0], 0.0),
    ("one constant symbol earns its positions", [3, 3, 3, 3, 3, 3], 0.5 * 2 / 6),
]


@pytest.mark.parametrize(("sentence", "response", "reward"), REWARDS, ids=[case[0] for case in REWARDS])
def test_reward_is_half_exact_half_positions(sentence: str, response: list[int], reward: float) -> None:
    scores = score_responses(_row(response), to=SIX)
    assert scores.reward.item() == pytest.approx(reward)
    assert scores.exact.item() is (reward == 1.0)


def test_tokens_after_the_last_position_do_not_matter() -> None:
    rewards = [score_responses(_row([0, 3, 3, 5, 7, 11], fill=fill), to=SIX).reward.item() for fill in range(N_SYMBOLS)]
    assert set(rewards) == {1.0}


def test_prompts_end_where_responses_begin() -> None:
    assert SIX.tokens[0].tolist() == [PAD] * 10 + [5, 3, 11, 0, 3, 7, SEPARATOR]
    assert SIX.answers[0].tolist() == [0, 3, 3, 5, 7, 11] + [PAD] * 10
    assert SIX.mask[0].tolist() == [True] * 6 + [False] * 10


def test_drawn_prompts_have_every_length_and_their_own_answers() -> None:
    drawn = draw_prompts(500, generator=torch.Generator().manual_seed(0))
    assert sorted(set(drawn.mask.sum(dim=1).tolist())) == list(range(MIN_LENGTH, MAX_LENGTH + 1))
    for tokens, answer, mask in zip(drawn.tokens, drawn.answers, drawn.mask, strict=True):
        assert sorted(token for token in tokens.tolist() if token < N_SYMBOLS) == answer[mask].tolist()


def test_repeated_prompts_form_groups() -> None:
    drawn = draw_prompts(2, generator=torch.Generator().manual_seed(0))
    repeated = drawn.repeat(3)
    assert len(repeated) == 6
    assert torch.equal(repeated.tokens, drawn.tokens[torch.tensor([0, 0, 0, 1, 1, 1])])
    assert torch.equal(repeated[torch.tensor([4])].answers, drawn.answers[1:])
