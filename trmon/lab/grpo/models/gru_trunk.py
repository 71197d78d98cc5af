"""A one-layer GRU."""

from __future__ import annotations

from torch import Tensor, nn

from trmon.lab.grpo.models.token_trunk import TokenTrunk

EMBEDDING = 32
WIDTH = 80


class GruTrunk(TokenTrunk):
    """See TokenTrunk; the cache is the state [1, B, width]."""

    width = WIDTH

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, WIDTH, batch_first=True)

    def read_all(self, tokens: Tensor) -> Tensor:
        """See TokenTrunk."""
        features: Tensor = self.gru(self.embedding(tokens))[0]
        return features

    def read_prompt(self, tokens: Tensor, *, copies: int) -> tuple[Tensor, Tensor]:
        """See TokenTrunk."""
        features, state = self.gru(self.embedding(tokens))
        return features[:, -1].repeat_interleave(copies, dim=0), state.repeat_interleave(copies, dim=1)

    def read_next(self, tokens: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """See TokenTrunk."""
        features, state = self.gru(self.embedding(tokens[:, None]), cache)
        return features[:, 0], state
