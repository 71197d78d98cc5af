"""The task of closing brackets: a beginning of 4 to 10 brackets of three kinds, and what closes those still open."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trmon.lab.grpo.tasks.token_task import TaskPrompts, build_prompts

KINDS = 3
SHORTEST, LONGEST = 4, 10
DEEPEST = 6
OPENS = 0.65
"""The chance that a bracket opens where one could close."""


@dataclass(frozen=True)
class CloseBrackets:
    """See TokenTask; kind k opens with symbol k + 1 and closes with symbol k + 1 + KINDS."""

    n_symbols: int = 2 * KINDS
    prompt_length: int = LONGEST + 1
    response_limit: int = DEEPEST + 5

    def draw(self, n: int, *, generator: torch.Generator) -> TaskPrompts:
        """Return n prompts of uniform length; at most DEEPEST brackets are open at once."""
        lengths = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator).tolist()
        kinds = torch.randint(KINDS, (n, LONGEST), generator=generator).tolist()
        opens = (torch.rand((n, LONGEST), generator=generator) < OPENS).tolist()
        rows = zip(kinds, opens, lengths, strict=True)
        return build_prompts([_brackets(kind[:length], open_) for kind, open_, length in rows], task=self)


def _brackets(kinds: list[int], opens: list[bool]) -> tuple[list[int], list[int]]:
    """Return a beginning, and the closing brackets of those that it leaves open, innermost first."""
    prompt, stack = [], list[int]()
    for kind, does_open in zip(kinds, opens, strict=False):
        if not stack or (does_open and len(stack) < DEEPEST):
            stack.append(kind)
            prompt.append(kind + 1)
        else:
            prompt.append(stack.pop() + 1 + KINDS)
    return prompt, [kind + 1 + KINDS for kind in reversed(stack)]
