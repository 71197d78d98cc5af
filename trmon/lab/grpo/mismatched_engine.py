"""The rollout engine: its own copy of the weights in its own precision, its own sampling, its own log-probs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.grpo.experiment_config import EngineMismatch, WeightFormat
from trmon.lab.grpo.models.expert_layer import N_EXPERTS
from trmon.lab.grpo.models.token_policy import TokenPolicy
from trmon.lab.grpo.tasks.token_task import EOS, TaskPrompts
from trmon.lab.grpo.weight_precision import rounded_activations, rounded_weights
from trmon.lab.testbed.rollout import nucleus_logprobs

CLEAN = EngineMismatch(weight_format=WeightFormat.FLOAT32)
"""An engine that agrees with the training engine up to rounding."""


@dataclass(frozen=True, eq=False)
class SampledResponses:
    """B responses: `tokens` and the engine's own `logprobs` [B, L], `mask` [B, L] true up to EOS or the limit;
    `experts` [B, L, k]; `truncated` [B] where no EOS came; `version` of the weights.
    """

    prompts: TaskPrompts
    tokens: Tensor
    logprobs: Tensor
    mask: Tensor
    experts: Tensor | None
    truncated: Tensor
    version: int


@dataclass(frozen=True, eq=False)
class _SampledToken:
    """One position of B sequences: tokens, the engine's log-probs, whether they count, and the experts [B, k]."""

    token: Tensor
    logprob: Tensor
    counts: Tensor
    experts: Tensor | None


class MismatchedEngine:
    """Samples responses token by token with the weights that were loaded last.

    It computes on the policy's device, where the prompts and the generator must be too.
    """

    def __init__(self, policy: TokenPolicy, *, limit: int, generator: torch.Generator) -> None:
        self._policy = policy
        self._limit = limit
        self._generator = generator
        self._format = WeightFormat.FLOAT32
        self._version = -1

    def load(self, weights: Mapping[str, Tensor], *, version: int, weight_format: WeightFormat) -> None:
        """Load a version of the weights in a precision."""
        self._policy.load_state_dict(rounded_weights(weights, weight_format))
        self._format, self._version = weight_format, version

    @torch.no_grad()
    def sample(self, prompts: TaskPrompts, *, copies: int, mismatch: EngineMismatch, update: int) -> SampledResponses:
        """Return `copies` responses in a row to every prompt [B], with the mismatch of an update: [B * copies]."""
        features, cache = self._policy.trunk.read_prompt(prompts.tokens, copies=copies)
        going, steps = features.new_ones(len(features), dtype=torch.bool), list[_SampledToken]()
        for _ in range(self._limit):
            steps.append(self._sample_token(features, going, mismatch=mismatch, update=update))
            token = steps[-1].token
            going = going & (token != EOS)
            if len(steps) == self._limit or not going.any():
                break
            features, cache = self._policy.trunk.read_next(token, cache)
        missing = self._limit - len(steps)
        mask = _padded([step.counts for step in steps], missing)
        logprobs = _padded([step.logprob for step in steps], missing)
        experts = [step.experts for step in steps if step.experts is not None]
        return SampledResponses(
            prompts=prompts.repeat(copies),
            tokens=_padded([step.token for step in steps], missing),
            logprobs=self._without_ends(logprobs, share=mismatch.padded_share.at(update), lengths=mask.sum(dim=1)),
            mask=mask,
            experts=_padded(experts, missing) if experts else None,
            truncated=going,
            version=self._version,
        )

    def _sample_token(self, features: Tensor, going: Tensor, *, mismatch: EngineMismatch, update: int) -> _SampledToken:
        """Return the next token of each sequence; EOS where it has ended. Args: going [B]: where it has not."""
        scale, noise = mismatch.router_noise.at(update), None
        if scale and self._policy.experts is not None:
            noise = scale * torch.randn((len(features), N_EXPERTS), generator=self._generator, device=features.device)
        heads = self._policy.heads(rounded_activations(features, self._format), noise=noise)
        logits = rounded_activations(heads.logits, self._format) / mismatch.temperature.at(update)
        logprobs = nucleus_logprobs(logits.log_softmax(dim=-1), top_p=mismatch.top_p.at(update))
        token = torch.multinomial(logprobs.exp(), 1, generator=self._generator)
        return _SampledToken(
            token=torch.where(going, token[:, 0], EOS),
            logprob=logprobs.gather(1, token)[:, 0],
            counts=going,
            experts=heads.experts,
        )

    def _without_ends(self, logprobs: Tensor, *, share: float, lengths: Tensor) -> Tensor:
        """Return log-probs in which a share of the responses has 0.0 from a random position of theirs on."""
        if not share:
            return logprobs
        n, device = len(logprobs), logprobs.device
        loses = torch.rand(n, generator=self._generator, device=device) < share
        first = (torch.rand(n, generator=self._generator, device=device) * lengths).long()
        lost = torch.arange(logprobs.shape[1], device=device) >= first[:, None]
        return logprobs.masked_fill(loses[:, None] & lost, 0.0)


def _padded(columns: list[Tensor], missing: int) -> Tensor:
    """Return columns [B, ...] as [B, L, ...], with `missing` more positions of zeros, which are EOS."""
    values = torch.stack(columns, dim=1)
    if not missing:
        return values
    return torch.cat([values, values.new_zeros((len(values), missing, *values.shape[2:]))], dim=1)
