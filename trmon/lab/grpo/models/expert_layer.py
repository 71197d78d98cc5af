"""A residual mixture of four experts, one or two of them chosen for each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
