"""The part of a policy that reads tokens: all at once for the learner, one by one for the rollout engine."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

TrunkCache = Any
"""What a trunk remembers of the tokens it has read; each kind of trunk has its own."""


class TokenTrunk(nn.Module):
    """Turns tokens into features; reading them at once and one by one gives the same up to rounding."""

    width: int

    @abstractmethod
    def read_all(self, tokens: Tensor) -> Tensor:
        """Return the features [B, L, width] after each of the tokens [B, L]."""

    @abstractmethod
    def read_prompt(self, tokens: Tensor, *, copies: int) -> tuple[Tensor, TrunkCache]:
        """Return the features [B * copies, width] after prompts [B, P], each `copies` times in a row, and the cache."""

    @abstractmethod
    def read_next(self, tokens: Tensor, cache: TrunkCache) -> tuple[Tensor, TrunkCache]:
        """Return the features [B, width] after one more token of each sequence [B], and the cache after it."""
