"""A task: prompts of tokens, their only right answers, and the reward of a response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> TaskPrompts:
        """Return the prompts of the given rows [n]."""
        return TaskPrompts(self.tokens[rows], self.answers[rows], self.answer_lengths[rows])

    def repeat(self, n: int) -> TaskPrompts:
        """Return every prompt n times in a row: [B * n]."""
        return self[torch.arange(len(self), device=self.tokens.device).repeat_interleave(n)]

    def to(self, device: torch.device) -> TaskPrompts:
        """Return the prompts on a device."""
        return TaskPrompts(self.tokens.to(device), self.answers.to(device), self.answer_lengths.to(device))

    @property
    def answer_mask(self) -> Tensor:
        """True for the tokens of the answers up to their EOS, [B, L]."""
        places = torch.arange(self.answers.shape[1], device=self.answers.device)
        return places < self.answer_lengths[:, None]


class TokenTask(Protocol):
    """A family of prompts: n_symbols symbols, prompts of prompt_length tokens, responses of at most response_limit."""

    @property
    def n_symbols(self) -> int:
        """The number of symbols."""

    @property
    def prompt_length(self) -> int:
        """Tokens of a prompt with its padding and the separator."""

    @property
    def response_limit(self) -> int:
        """Most tokens of a response, EOS included; longer than any answer."""

    def draw(self, n: int, *, generator: torch.Generator) -> TaskPrompts:
        """Return n random prompts."""


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


def build_prompts(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, task: TokenTask) -> TaskPrompts:
    """Return the prompts of (prompt, answer) pairs of symbols; separator, padding and EOS are added."""
    padding, separator = task.n_symbols + 1, task.n_symbols + 2
    tokens = [[padding] * (task.prompt_length - 1 - len(prompt)) + [*prompt, separator] for prompt, _ in pairs]
    answers = [[*answer] + [EOS] * (task.response_limit - len(answer)) for _, answer in pairs]
    lengths = [len(answer) + 1 for _, answer in pairs]
    return TaskPrompts(torch.tensor(tokens), torch.tensor(answers), torch.tensor(lengths))
