"""The rollout engine: it has its own copy of the weights, its own precision and its own log-probs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.testbed.injection import Fault
from trmon.lab.testbed.policy import N_EXPERTS, Weights, new_policy
from trmon.lab.testbed.precision import bfloat16, quantised
from trmon.lab.testbed.task import MAX_LENGTH, Prompts


@dataclass(frozen=True, eq=False)
class Rollout:
    """B sampled responses: `tokens`, the engine's own `logprobs` (mu) and `experts`, each [B, T]; `versions` [B].

    `mask` [B, T] is true where a token was sampled; `truncated` [B] where the limit of tokens cut the response, None
    without a limit.
    """

    prompts: Prompts
    tokens: Tensor
    logprobs: Tensor
    experts: Tensor
    versions: Tensor
    mask: Tensor
    truncated: Tensor | None


class RolloutEngine:
    """Samples responses step by step with the weights loaded last; knows nothing else of the learner."""

    def __init__(self, *, generator: torch.Generator) -> None:
        self._generator = generator
        self._policy = new_policy(0)
        self._version = -1

    def load(self, weights: Weights, *, version: int, bits: int | None = None) -> None:
        """Load a version of the weights in this engine's precision: bfloat16, or `bits` per tensor."""
        self._policy.load_state_dict(bfloat16(weights) if bits is None else quantised(weights, bits=bits))
        self._version = version

    @torch.no_grad()
    def generate(self, prompts: Prompts, *, fault: Fault) -> Rollout:
        """Return one sampled response per prompt, with the fault's effect on sampling and log-probs."""
        features, state = self._policy.encode(prompts.tokens)
        spoken: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(MAX_LENGTH):
            spoken.append(self._speak(features[:, -1:], fault))
            features, state = self._policy.encode(spoken[-1][0], state)
        tokens, logprobs, experts = (torch.cat(column, dim=1) for column in zip(*spoken, strict=True))
        limit = MAX_LENGTH if fault.token_limit is None else fault.token_limit
        return Rollout(
            prompts=prompts,
            tokens=tokens,
            logprobs=self._without_lost_ends(logprobs, share=fault.padded_share),
            experts=experts,
            versions=torch.full((len(prompts),), self._version),
            mask=prompts.mask & (torch.arange(MAX_LENGTH) < limit),
            truncated=None if fault.token_limit is None else prompts.mask.sum(dim=1) > limit,
        )

    def _speak(self, features: Tensor, fault: Fault) -> tuple[Tensor, Tensor, Tensor]:
        noise = None
        if fault.router_noise:
            shape = (len(features), 1, N_EXPERTS)
            noise = fault.router_noise * torch.randn(shape, generator=self._generator)
        reading = self._policy.read(features, router_noise=noise)
        logits = reading.logits[:, 0] / fault.temperature
        logprobs = nucleus_logprobs(logits.log_softmax(dim=-1), top_p=fault.top_p)
        token = torch.multinomial(logprobs.exp(), 1, generator=self._generator)
        return token, logprobs.gather(1, token), reading.experts

    def _without_lost_ends(self, logprobs: Tensor, *, share: float) -> Tensor:
        if not share:
            return logprobs
        loses_its_end = torch.rand((len(logprobs), 1), generator=self._generator) < share
        first_lost = torch.randint(MAX_LENGTH, (len(logprobs), 1), generator=self._generator)
        return logprobs.masked_fill(loses_its_end & (torch.arange(MAX_LENGTH) >= first_lost), 0.0)


def nucleus_logprobs(logprobs: Tensor, *, top_p: float) -> Tensor:
    """Return log-probs [B, V] of the smallest set of symbols that reaches top_p, renormalised; the rest are -inf."""
    if top_p >= 1.0:
        return logprobs
    ranked, order = logprobs.sort(dim=-1, descending=True)
    held_before = ranked.exp().cumsum(dim=-1) - ranked.exp()
    outside = torch.zeros_like(held_before, dtype=torch.bool).scatter(1, order, held_before >= top_p)
    return logprobs.masked_fill(outside, float("-inf")).log_softmax(dim=-1)
