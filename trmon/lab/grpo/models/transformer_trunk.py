"""A two-layer causal transformer with a key-value cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from trmon.lab.grpo.models.token_trunk import TokenTrunk

WIDTH = 64
N_HEADS = 4
N_LAYERS = 2
LONGEST = 48
"""Positions that have an embedding: prompt and response."""


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """Keys and values of each layer, [B, heads, LONGEST, width / heads], of which the first `length` are filled."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    length: int


class CausalBlock(nn.Module):
    """Self-attention over the tokens so far and a feed-forward layer, both with normalised input and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.feed_norm = nn.LayerNorm(WIDTH)
        self.feed_in = nn.Linear(WIDTH, 2 * WIDTH)
        self.feed_out = nn.Linear(2 * WIDTH, WIDTH)

    def project(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [B, heads, L, width / heads] of features [B, L, WIDTH]."""
        projected = self.attention_in(self.attention_norm(features))
        split = projected.view(*projected.shape[:2], 3, N_HEADS, WIDTH // N_HEADS).permute(2, 0, 3, 1, 4)
        queries, keys, values = split.unbind(0)
        return queries, keys, values

    def finish(self, features: Tensor, attended: Tensor) -> Tensor:
        """Return the block's output from its input and what its heads attended to."""
        features = features + self.attention_out(attended.transpose(1, 2).flatten(2))
        fed: Tensor = self.feed_out(gelu(self.feed_in(self.feed_norm(features))))
        return features + fed


class TransformerTrunk(TokenTrunk):
    """See TokenTrunk; the cache is a KeyValueCache."""

    width = WIDTH

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, WIDTH)
        self.position = nn.Parameter(0.1 * torch.randn(LONGEST, WIDTH))
        self.blocks = nn.ModuleList(CausalBlock() for _ in range(N_LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def read_all(self, tokens: Tensor) -> Tensor:
        """See TokenTrunk."""
        return self._read(tokens)[0]

    def read_prompt(self, tokens: Tensor, *, copies: int) -> tuple[Tensor, KeyValueCache]:
        """See TokenTrunk."""
        features, keys, values = self._read(tokens)
        cache = KeyValueCache(
            keys=tuple(_room(layer.repeat_interleave(copies, dim=0)) for layer in keys),
            values=tuple(_room(layer.repeat_interleave(copies, dim=0)) for layer in values),
            length=tokens.shape[1],
        )
        return features[:, -1].repeat_interleave(copies, dim=0), cache

    def read_next(self, tokens: Tensor, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """See TokenTrunk; the given cache's tensors are written to, so it must not be read again."""
        at = cache.length
        features = (self.embedding(tokens) + self.position[at])[:, None]
        for block, keys, values in zip(self._blocks, cache.keys, cache.values, strict=True):
            query, key, value = block.project(features)
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = key, value
            attended = scaled_dot_product_attention(query, keys[:, :, : at + 1], values[:, :, : at + 1])
            features = block.finish(features, attended)
        normed: Tensor = self.norm(features)
        return normed[:, 0], replace(cache, length=at + 1)

    def _read(self, tokens: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        features = self.embedding(tokens) + self.position[: tokens.shape[1]]
        every_key, every_value = [], []
        for block in self._blocks:
            queries, keys, values = block.project(features)
            attended = scaled_dot_product_attention(queries, keys, values, is_causal=True)
            features = block.finish(features, attended)
            every_key.append(keys)
            every_value.append(values)
        return self.norm(features), every_key, every_value

    @property
    def _blocks(self) -> list[CausalBlock]:
        return [block for block in self.blocks if isinstance(block, CausalBlock)]


def _room(filled: Tensor) -> Tensor:
    """Return a tensor of LONGEST positions that begins with the filled ones [B, heads, P, d]."""
    whole = filled.new_zeros((*filled.shape[:2], LONGEST, filled.shape[3]))
    whole[:, :, : filled.shape[2]] = filled
    return whole
