"""The task of sorting: 5 to 9 symbols of 10, in ascending order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trmon.lab.grpo.tasks.token_task import TaskPrompts, build_prompts

SHORTEST, LONGEST = 5, 9


@dataclass(frozen=True)
class SortSymbols:
    """See TokenTask."""

    n_symbols: int = 10
    prompt_length: int = LONGEST + 1
    response_limit: int = LONGEST + 4

    def draw(self, n: int, *, generator: torch.Generator) -> TaskPrompts:
        """Return n prompts of uniform length and uniform symbols."""
        symbols = torch.randint(1, self.n_symbols + 1, (n, LONGEST), generator=generator).tolist()
        lengths = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator).tolist()
        shown = [row[:length] for row, length in zip(symbols, lengths, strict=True)]
        return build_prompts([(row, sorted(row)) for row in shown], task=self)
