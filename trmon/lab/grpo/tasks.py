"""Families of tasks whose answers can be verified, over a small vocabulary with an end-of-sequence token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

EOS = 0
"""Ends a response; symbols are numbered from 1."""


@dataclass(frozen=True, eq=False)
class TaskPrompts:
    """B prompts and their answers.

    `tokens` [B, P] are padded on the left, so that every response starts at the same position; `answers` [B, L] end
    with EOS and are padded with EOS; `answer_lengths` [B] count the first EOS.
    """

    tokens: Tensor
    answers: Tensor
    answer_lengths: Tensor

    def repeat(self, n: int) -> TaskPrompts:
        """Return every prompt n times in a row: [B * n]."""
        parts = (self.tokens, self.answers, self.answer_lengths)
        return TaskPrompts(*(part.repeat_interleave(n, dim=0) for part in parts))

    @property
    def answer_mask(self) -> Tensor:
        """True for the tokens of the answers up to their EOS, [B, L]."""
        return torch.arange(self.answers.shape[1]) < self.answer_lengths[:, None]


Pairs: TypeAlias = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Prompts with their answers, as symbols."""


@dataclass(frozen=True)
class TokenTask:
    """A family of prompts, padded to `prompt_length` tokens with the separator.

    `response_limit` is the most tokens of a response, EOS included; it is longer than any answer.
    """

    draw_pairs: Callable[[int, torch.Generator], Pairs]
    n_symbols: int
    prompt_length: int
    response_limit: int

    def draw(self, n: int, *, generator: torch.Generator) -> TaskPrompts:
        """Return n random prompts."""
        return build_prompts(self.draw_pairs(n, generator), task=self)


@dataclass(frozen=True, eq=False)
class TaskScores:
    """The verified rewards of B responses: `reward` [B] in [0, 1], and `exact` [B], true where all is right."""

    reward: Tensor
    exact: Tensor


def score_answers(tokens: Tensor, mask: Tensor, *, prompts: TaskPrompts) -> TaskScores:
    """Return the rewards of responses [B, L]: half for an exact answer, half for the share of right positions.

    A position counts up to the end of the longer of response and answer; EOS is one. Args: mask: [B, L], true up to
    the response's EOS, or to the limit.
    """
    right = ((tokens == prompts.answers) & mask & prompts.answer_mask).sum(dim=1)
    longer = torch.maximum(mask.sum(dim=1), prompts.answer_lengths)
    exact = right == longer
    return TaskScores(reward=0.5 * exact + 0.5 * right / longer, exact=exact)


def build_prompts(pairs: Pairs, *, task: TokenTask) -> TaskPrompts:
    """Return the prompts of (prompt, answer) pairs of symbols; separator, padding and EOS are added."""
    padding, separator = task.n_symbols + 1, task.n_symbols + 2
    tokens = [[padding] * (task.prompt_length - 1 - len(prompt)) + [*prompt, separator] for prompt, _ in pairs]
    answers = [[*answer] + [EOS] * (task.response_limit - len(answer)) for _, answer in pairs]
    lengths = [len(answer) + 1 for _, answer in pairs]
    return TaskPrompts(torch.tensor(tokens), torch.tensor(answers), torch.tensor(lengths))


N_SORTED = 10
SHORTEST_LIST, LONGEST_LIST = 5, 9


def _lists(n: int, generator: torch.Generator) -> Pairs:
    """Return lists of uniform length and uniform symbols, and their symbols in order."""
    symbols = torch.randint(1, N_SORTED + 1, (n, LONGEST_LIST), generator=generator).tolist()
    lengths = torch.randint(SHORTEST_LIST, LONGEST_LIST + 1, (n,), generator=generator).tolist()
    shown = [row[:length] for row, length in zip(symbols, lengths, strict=True)]
    return [(row, sorted(row)) for row in shown]


TASK_FAMILIES: Mapping[str, TokenTask] = {
    "sort": TokenTask(_lists, n_symbols=N_SORTED, prompt_length=LONGEST_LIST + 1, response_limit=LONGEST_LIST + 4)
}
