"""The task: sort 6 to 16 symbols out of 12, with a verifiable reward."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

N_SYMBOLS = 12
MIN_LENGTH = 6
MAX_LENGTH = 16
PAD = N_SYMBOLS
SEPARATOR = N_SYMBOLS + 1
VOCABULARY = N_SYMBOLS + 2
"""Symbols, padding and the separator between a prompt and its response; only symbols are ever sampled."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """B prompts and their answers.

    `tokens` [B, MAX_LENGTH + 1] are padded on the left and end with the separator, so that every response starts
    at the same position; `answers` [B, MAX_LENGTH] are padded on the right; `mask` [B, MAX_LENGTH] is true where a
    response token counts.
    """

    tokens: Tensor
    answers: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> Prompts:
        """Return the prompts of the given rows [n]."""
        return Prompts(tokens=self.tokens[rows], answers=self.answers[rows], mask=self.mask[rows])

    def repeat(self, n: int) -> Prompts:
        """Return every prompt n times in a row: [B * n]."""
        return Prompts(
            tokens=self.tokens.repeat_interleave(n, dim=0),
            answers=self.answers.repeat_interleave(n, dim=0),
            mask=self.mask.repeat_interleave(n, dim=0),
        )


@dataclass(frozen=True, eq=False)
class Scores:
    """The rewards of B responses: `reward` [B] in [0, 1] and `exact` [B], true where every position is right."""

    reward: Tensor
    exact: Tensor


def draw_prompts(n: int, *, generator: torch.Generator) -> Prompts:
    """Return n prompts of uniform length and uniform symbols."""
    symbols = torch.randint(N_SYMBOLS, (n, MAX_LENGTH), generator=generator)
    lengths = torch.randint(MIN_LENGTH, MAX_LENGTH + 1, (n,), generator=generator)
    return prompts(symbols, lengths)


def prompts(symbols: Tensor, lengths: Tensor) -> Prompts:
    """Return the prompts whose symbols are the first `lengths` [B] of each row of `symbols` [B, MAX_LENGTH]."""
    mask = torch.arange(MAX_LENGTH) < lengths[:, None]
    answers = symbols.masked_fill(~mask, PAD).sort(dim=1).values
    on_the_right = mask.flip(1)
    tokens = torch.full_like(symbols, PAD).masked_scatter(on_the_right, symbols[mask])
    separator = torch.full((len(symbols), 1), SEPARATOR)
    return Prompts(tokens=torch.cat([tokens, separator], dim=1), answers=answers, mask=mask)


def score_responses(responses: Tensor, *, to: Prompts, said: Tensor | None = None) -> Scores:
    """Return the rewards of responses [B, MAX_LENGTH]: half for an exact answer, half for the right positions.

    Args: said: [B, MAX_LENGTH], true where a response has a token; None is everywhere.
    """
    right = (responses == to.answers) & to.mask
    if said is not None:
        right &= said
    position_match = right.sum(dim=1) / to.mask.sum(dim=1)
    exact = (right == to.mask).all(dim=1)
    return Scores(reward=0.5 * exact + 0.5 * position_match, exact=exact)
