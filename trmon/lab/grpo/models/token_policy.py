"""A policy: a trunk, an optional layer of experts, and a head over EOS and the symbols."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from trmon.lab.grpo.models.expert_layer import ExpertLayer
from trmon.lab.grpo.models.gru_trunk import GruTrunk
from trmon.lab.grpo.models.token_trunk import TokenTrunk
from trmon.lab.grpo.models.transformer_trunk import TransformerTrunk

PADDING_AND_SEPARATOR = 2


class Architecture(Enum):
    """The kinds of policies."""

    GRU = "gru"
    TRANSFORMER = "transformer"
    MOE = "moe"
    """A GRU with a layer of experts."""


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
        is_transformer = architecture is Architecture.TRANSFORMER
        self.trunk: TokenTrunk = TransformerTrunk(n_tokens) if is_transformer else GruTrunk(n_tokens)
        has_experts = architecture is Architecture.MOE
        self.experts = ExpertLayer(self.trunk.width, k=experts_per_token) if has_experts else None
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

    @property
    def device(self) -> torch.device:
        """The device that the policy computes on."""
        return self.head.weight.device

    def copied_weights(self) -> dict[str, Tensor]:
        """Return a copy of the parameters by name."""
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}


def seeded_policy(architecture: Architecture, *, n_symbols: int, experts_per_token: int = 1, seed: int) -> TokenPolicy:
    """Return a policy initialised from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TokenPolicy(architecture, n_symbols=n_symbols, experts_per_token=experts_per_token)
