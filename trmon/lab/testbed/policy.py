"""The policy: a one-layer GRU with a residual mixture of four experts, one of them chosen per token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trmon.lab.testbed.task import N_SYMBOLS, VOCABULARY, Prompts

EMBEDDING = 32
HIDDEN = 80
N_EXPERTS = 4

Weights = dict[str, Tensor]
"""A policy's parameters by name, detached from any graph."""


@dataclass(frozen=True, eq=False)
class PolicyOutput:
    """The policy's outputs at [B, L] positions: `logits` [B, L, N_SYMBOLS] and `routing` logits [B, L, N_EXPERTS]."""

    logits: Tensor
    routing: Tensor

    @property
    def experts(self) -> Tensor:
        """The expert each position chose, [B, L]."""
        return self.routing.argmax(dim=-1)


@dataclass(frozen=True, eq=False)
class ScoredResponses:
    """The policy's outputs on responses: `logprobs` and `entropy` [B, T] of their tokens and `routing` logits
    [B, T, N_EXPERTS].
    """

    logprobs: Tensor
    entropy: Tensor
    routing: Tensor

    @property
    def experts(self) -> Tensor:
        """The expert each token met, [B, T]."""
        return self.routing.argmax(dim=-1)


class PolicyNetwork(nn.Module):
    """An autoregressive policy over symbols; the learner runs it in parallel, the rollout engine step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, HIDDEN, batch_first=True)
        self.router = nn.Linear(HIDDEN, N_EXPERTS)
        self.experts = nn.Parameter(torch.randn(N_EXPERTS, HIDDEN, HIDDEN) * HIDDEN**-0.5)
        self.head = nn.Linear(HIDDEN, N_SYMBOLS)

    def encode(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return features [B, L, HIDDEN] of tokens [B, L] after `state`, and the state after them."""
        features, after = self.gru(self.embedding(tokens), state)
        return features, after

    def read(self, features: Tensor, *, router_noise: Tensor | None = None) -> PolicyOutput:
        """Return the outputs at features [B, L, HIDDEN]; router_noise [B, L, N_EXPERTS] is added to routing logits."""
        routing = self.router(features)
        if router_noise is not None:
            routing = routing + router_noise
        gate, chosen = routing.softmax(dim=-1).max(dim=-1)
        every_expert = torch.einsum("blh,ehk->blek", features, self.experts)
        index = chosen[..., None, None].expand(*chosen.shape, 1, HIDDEN)
        expert = every_expert.gather(2, index).squeeze(2).tanh()
        return PolicyOutput(logits=self.head(features + gate[..., None] * expert), routing=routing)

    def score(self, prompts: Prompts, responses: Tensor) -> ScoredResponses:
        """Return log-probs and experts of responses [B, T] in one parallel pass, with gradients."""
        first = prompts.tokens.shape[1] - 1
        tokens = torch.cat([prompts.tokens, responses[:, :-1]], dim=1)
        features, _ = self.encode(tokens)
        reading = self.read(features[:, first:])
        every = reading.logits.log_softmax(dim=-1)
        logprobs = every.gather(2, responses[..., None]).squeeze(2)
        return ScoredResponses(logprobs=logprobs, entropy=-(every.exp() * every).sum(dim=-1), routing=reading.routing)

    def weights(self) -> Weights:
        """Return a copy of the parameters."""
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}


def new_policy(seed: int) -> PolicyNetwork:
    """Return a policy initialised from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PolicyNetwork()


def policy_with_weights(weights: Weights) -> PolicyNetwork:
    """Return a policy that holds a copy of the weights."""
    policy = new_policy(0)
    policy.load_state_dict(weights)
    return policy
