"""The part of a policy that reads tokens: all at once for the learner, one by one for the rollout engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

TrunkCache = Any
"""The state of a trunk after the tokens it has read; each kind of trunk has its own."""


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


EMBEDDING = 32
GRU_WIDTH = 80


class GruTrunk(TokenTrunk):
    """See TokenTrunk; the cache is the state [1, B, width]."""

    width = GRU_WIDTH

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, GRU_WIDTH, batch_first=True)

    def read_all(self, tokens: Tensor) -> Tensor:
        features: Tensor = self.gru(self.embedding(tokens))[0]
        return features

    def read_prompt(self, tokens: Tensor, *, copies: int) -> tuple[Tensor, Tensor]:
        features, state = self.gru(self.embedding(tokens))
        return features[:, -1].repeat_interleave(copies, dim=0), state.repeat_interleave(copies, dim=1)

    def read_next(self, tokens: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        features, state = self.gru(self.embedding(tokens[:, None]), cache)
        return features[:, 0], state


N_EXPERTS = 4


class ExpertLayer(nn.Module):
    """Adds to features the outputs of the `k` experts with the largest routing logits, weighted by their gates."""

    def __init__(self, width: int, *, k: int) -> None:
        super().__init__()
        self.k = k
        self.router = nn.Linear(width, N_EXPERTS)
        self.experts = nn.Parameter(torch.randn(N_EXPERTS, width, width) * width**-0.5)

    def forward(
        self, features: Tensor, *, noise: Tensor | None, replayed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the new features [n, width], the experts [n, k] and the routing logits [n, N_EXPERTS].

        Args: features [n, width]; noise [n, N_EXPERTS] is added to the routing logits; replayed [n, k] are experts
        to take in place of those chosen, whose gates are still this router's.
        """
        routing = self.router(features)
        if noise is not None:
            routing = routing + noise
        experts = routing.topk(self.k, dim=-1).indices if replayed is None else replayed
        gates = routing.softmax(dim=-1).gather(1, experts)
        every = torch.einsum("nh,ehk->nek", features, self.experts).tanh()
        chosen = every.gather(1, experts[..., None].expand(-1, -1, every.shape[-1]))
        return features + (gates[..., None] * chosen).sum(dim=1), experts, routing


def load_imbalance(routing: Tensor) -> Tensor:
    """Return N_EXPERTS * sum_e share_e * mean probability_e of routing logits [n, N_EXPERTS]: 1 when balanced.

    Source: Fedus et al. 2021, "Switch Transformers", equation 4.
    """
    share = torch.nn.functional.one_hot(routing.argmax(dim=-1), N_EXPERTS).float().mean(dim=0)
    return N_EXPERTS * (share * routing.softmax(dim=-1).mean(dim=0)).sum()


PADDING_AND_SEPARATOR = 2


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of policy: what reads n tokens, whether a layer of experts follows, the rate of the supervised start."""

    trunk: Callable[[int], TokenTrunk]
    has_experts: bool = False
    start_learning_rate: float = 5e-3


ARCHITECTURES: Mapping[str, Architecture] = {
    "gru": Architecture(GruTrunk),
    "moe": Architecture(GruTrunk, has_experts=True),
}


@dataclass(frozen=True, eq=False)
class PolicyHeads:
    """Outputs for n tokens: `logits` [n, n_symbols + 1]; `experts` [n, k] and `routing` [n, E] if it has experts."""

    logits: Tensor
    experts: Tensor | None
    routing: Tensor | None


@dataclass(frozen=True, eq=False)
class ResponseScores:
    """The policy's view of responses: `logprobs` and `entropy` [B, L]; `experts` [B, L, k] and `routing` [B, L, E]."""

    logprobs: Tensor
    entropy: Tensor
    experts: Tensor | None
    routing: Tensor | None


class TokenPolicy(nn.Module):
    """An autoregressive policy over EOS and the symbols of a task."""

    def __init__(self, architecture: Architecture, *, n_symbols: int, experts_per_token: int = 1) -> None:
        super().__init__()
        n_tokens = n_symbols + 1 + PADDING_AND_SEPARATOR
        self.trunk = architecture.trunk(n_tokens)
        self.experts = ExpertLayer(self.trunk.width, k=experts_per_token) if architecture.has_experts else None
        self.head = nn.Linear(self.trunk.width, n_symbols + 1)

    def heads(self, features: Tensor, *, noise: Tensor | None = None, replayed: Tensor | None = None) -> PolicyHeads:
        """Return the outputs at features [n, width]. Args: noise, replayed: see ExpertLayer."""
        experts = routing = None
        if self.experts is not None:
            features, experts, routing = self.experts(features, noise=noise, replayed=replayed)
        return PolicyHeads(self.head(features), experts, routing)

    def score(self, prompts: Tensor, responses: Tensor, *, replayed: Tensor | None = None) -> ResponseScores:
        """Return log-probs of responses [B, L] to prompts [B, P] in one parallel pass, with gradients.

        Args: replayed [B, L, k]: the experts that each token met in the rollout, to be taken again.
        """
        tokens = torch.cat([prompts, responses[:, :-1]], dim=1)
        features = self.trunk.read_all(tokens)[:, prompts.shape[1] - 1 :]
        shape = responses.shape
        heads = self.heads(features.flatten(0, 1), replayed=None if replayed is None else replayed.flatten(0, 1))
        every = heads.logits.log_softmax(dim=-1)
        return ResponseScores(
            logprobs=every.gather(1, responses.reshape(-1, 1)).view(shape),
            entropy=-(every.exp() * every).sum(dim=-1).view(shape),
            experts=None if heads.experts is None else heads.experts.view(*shape, -1),
            routing=None if heads.routing is None else heads.routing.view(*shape, -1),
        )

    def copied_weights(self) -> dict[str, Tensor]:
        """Return a copy of the parameters by name."""
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}


def seeded_policy(architecture: Architecture, *, n_symbols: int, experts_per_token: int = 1, seed: int) -> TokenPolicy:
    """Return a policy initialised from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TokenPolicy(architecture, n_symbols=n_symbols, experts_per_token=experts_per_token)
