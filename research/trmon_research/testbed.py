"""The testbed of the studies: the lab's trainer with more tasks and a transformer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from trmon.domain.errors import InvalidInput
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import GrpoTrainer, UpdateOutcome
from trmon.lab.grpo.tasks import Pairs, TokenTask
from trmon.lab.grpo.token_policy import Architecture, TokenTrunk
from trmon_client import Monitor

SHORTEST_NUMBER, LONGEST_NUMBER = 2, 3


def _sums(n: int, generator: torch.Generator) -> Pairs:
    """Return two numbers of uniform length and uniform digits, and their sum.

    Digit d is symbol d + 1, least significant first; the digits of both numbers alternate.
    """
    digits = torch.randint(10, (n, 2, LONGEST_NUMBER), generator=generator).tolist()
    lengths = torch.randint(SHORTEST_NUMBER, LONGEST_NUMBER + 1, (n,), generator=generator).tolist()
    return [
        (_alternating(first[:length], second[:length]), _digits_of_sum(first[:length], second[:length]))
        for (first, second), length in zip(digits, lengths, strict=True)
    ]


def _alternating(first: list[int], second: list[int]) -> list[int]:
    return [digit + 1 for pair in zip(first, second, strict=True) for digit in pair]


def _digits_of_sum(first: list[int], second: list[int]) -> list[int]:
    carry, symbols = 0, []
    for one, other in zip(first, second, strict=True):
        carry, digit = divmod(one + other + carry, 10)
        symbols.append(digit + 1)
    return symbols


KINDS = 3
SHORTEST_OPENING, LONGEST_OPENING = 4, 10
DEEPEST = 6
OPENS = 0.65
"""The chance that a bracket opens where one could close."""


def _openings(n: int, generator: torch.Generator) -> Pairs:
    """Return beginnings of uniform length, with at most DEEPEST brackets open at once, and what closes them."""
    lengths = torch.randint(SHORTEST_OPENING, LONGEST_OPENING + 1, (n,), generator=generator).tolist()
    kinds = torch.randint(KINDS, (n, LONGEST_OPENING), generator=generator).tolist()
    opens = (torch.rand((n, LONGEST_OPENING), generator=generator) < OPENS).tolist()
    return [_brackets(kind[:length], open_) for kind, open_, length in zip(kinds, opens, lengths, strict=True)]


def _brackets(kinds: list[int], opens: list[bool]) -> tuple[list[int], list[int]]:
    """Return a beginning, and the closing brackets of those that it leaves open, innermost first.

    Kind k opens with symbol k + 1 and closes with symbol k + 1 + KINDS.
    """
    prompt, stack = [], list[int]()
    for kind, does_open in zip(kinds, opens, strict=False):
        if not stack or (does_open and len(stack) < DEEPEST):
            stack.append(kind)
            prompt.append(kind + 1)
        else:
            prompt.append(stack.pop() + 1 + KINDS)
    return prompt, [kind + 1 + KINDS for kind in reversed(stack)]


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
        return self._read(tokens)[0]

    def read_prompt(self, tokens: Tensor, *, copies: int) -> tuple[Tensor, KeyValueCache]:
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


class StudyTrainer(GrpoTrainer):
    """Trains every task and architecture of the studies, in the order in which plans draw them."""

    tasks: ClassVar[Mapping[str, TokenTask]] = {
        **GrpoTrainer.tasks,
        "add": TokenTask(_sums, n_symbols=10, prompt_length=2 * LONGEST_NUMBER + 1, response_limit=LONGEST_NUMBER + 4),
        "brackets": TokenTask(
            _openings, n_symbols=2 * KINDS, prompt_length=LONGEST_OPENING + 1, response_limit=DEEPEST + 5
        ),
    }
    architectures: ClassVar[Mapping[str, Architecture]] = {
        "gru": GrpoTrainer.architectures["gru"],
        "transformer": Architecture(TransformerTrunk, start_learning_rate=2e-3),
        "moe": GrpoTrainer.architectures["moe"],
    }


def train_experiment(config: ExperimentConfig, monitor: Monitor) -> Iterator[UpdateOutcome]:
    """Train as configured, report to the monitor, and yield each update."""
    yield from map(StudyTrainer(config, monitor).run_update, range(config.n_updates))


def read_config(path: Path) -> ExperimentConfig:
    """Return the configuration in a JSON file. Errors: InvalidInput naming the field."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=ExperimentConfig)
    except msgspec.MsgspecError as error:
        raise InvalidInput("FILE", f"{path}: {error}") from error
    known = {"task": StudyTrainer.tasks, "architecture": StudyTrainer.architectures}
    for field, names in known.items():
        if getattr(config, field) not in names:
            raise InvalidInput(field, f"{getattr(config, field)!r} must be one of {', '.join(names)}")
    return config
