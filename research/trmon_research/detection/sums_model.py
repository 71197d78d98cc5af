"""The learner's policy: one block of a decoder-only transformer whose MLP is a top-1 mixture of four experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trmon_research.detection.running_sums import MAX_RESPONSE, N_OUTPUTS, PROMPT_LENGTH, VOCABULARY

WIDTH, HEADS, EXPERTS, HIDDEN = 32, 2, 4, 48
CONTEXT = PROMPT_LENGTH + MAX_RESPONSE - 1
EPSILON = 1e-5


class SumsModel(nn.Module):
    """Scores responses; parameters are plain tensors, so that the rollout engine can copy them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(scale * torch.randn(shape, generator=generator))

        self.embedding = weight(VOCABULARY, WIDTH, scale=0.5)
        self.position = weight(CONTEXT, WIDTH, scale=0.5)
        self.qkv = weight(WIDTH, 3 * WIDTH, scale=WIDTH**-0.5)
        self.mix = weight(WIDTH, WIDTH, scale=WIDTH**-0.5)
        self.router = weight(WIDTH, EXPERTS, scale=WIDTH**-0.5)
        self.enter = weight(EXPERTS, WIDTH, HIDDEN, scale=WIDTH**-0.5)
        self.leave = weight(EXPERTS, HIDDEN, WIDTH, scale=HIDDEN**-0.5)
        self.output = weight(WIDTH, N_OUTPUTS, scale=WIDTH**-0.5)
        causal = torch.arange(CONTEXT) <= torch.arange(PROMPT_LENGTH - 1, CONTEXT)[:, None]
        self.register_buffer("allowed", causal)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probs over outputs [B, MAX_RESPONSE, N_OUTPUTS] and routing probabilities, of contexts."""
        n = len(tokens)
        states = self.embedding[tokens] + self.position
        query, key, value = (normed(states) @ self.qkv).split(WIDTH, dim=-1)
        split = (n, -1, HEADS, WIDTH // HEADS)
        query, key, value = (part.reshape(split).transpose(1, 2) for part in (query, key, value))
        scores = query[:, :, PROMPT_LENGTH - 1 :] @ key.transpose(2, 3) * (WIDTH // HEADS) ** -0.5
        weights = scores.masked_fill(~self.allowed, float("-inf")).softmax(dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(n, MAX_RESPONSE, WIDTH)
        states = states[:, PROMPT_LENGTH - 1 :] + mixed @ self.mix
        inner = normed(states)
        routing = (inner @ self.router).softmax(dim=-1)
        gate = torch.where(routing == routing.amax(dim=-1, keepdim=True), routing, 0.0)
        hidden = torch.einsum("btd,edh->bteh", inner, self.enter).relu() * gate[..., None]
        states = states + torch.einsum("bteh,ehd->btd", hidden, self.leave)
        return (normed(states) @ self.output).log_softmax(dim=-1), routing


def normed(states: Tensor) -> Tensor:
    """Return the states divided by their root mean square."""
    return states * torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + EPSILON)
