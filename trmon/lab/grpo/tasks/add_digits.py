"""The task of modular addition: two numbers of 2 or 3 digits, their sum modulo the same power of ten."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trmon.lab.grpo.tasks.token_task import TaskPrompts, build_prompts

SHORTEST, LONGEST = 2, 3


@dataclass(frozen=True)
class AddDigits:
    """See TokenTask; digit d is symbol d + 1, least significant first, the digits of both numbers alternate."""

    n_symbols: int = 10
    prompt_length: int = 2 * LONGEST + 1
    response_limit: int = LONGEST + 4

    def draw(self, n: int, *, generator: torch.Generator) -> TaskPrompts:
        """Return n prompts of uniform length and uniform digits."""
        digits = torch.randint(10, (n, 2, LONGEST), generator=generator).tolist()
        lengths = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator).tolist()
        pairs = [
            (_alternating(first[:length], second[:length]), _digits_of_sum(first[:length], second[:length]))
            for (first, second), length in zip(digits, lengths, strict=True)
        ]
        return build_prompts(pairs, task=self)


def _alternating(first: list[int], second: list[int]) -> list[int]:
    return [digit + 1 for pair in zip(first, second, strict=True) for digit in pair]


def _digits_of_sum(first: list[int], second: list[int]) -> list[int]:
    carry, symbols = 0, []
    for one, other in zip(first, second, strict=True):
        carry, digit = divmod(one + other + carry, 10)
        symbols.append(digit + 1)
    return symbols
