"""The rollout engine: its own copy of the weights in its own precision, its own sampling, its own log-probs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trmon.lab.grpo.experiment_config import EngineMismatch, WeightFormat
from trmon.lab.grpo.tasks import EOS, TaskPrompts
from trmon.lab.grpo.token_policy import N_EXPERTS, TokenPolicy

INTEGER_BITS = {WeightFormat.INT8: 8, WeightFormat.INT4: 4, WeightFormat.INT3: 3}
LARGEST_FLOAT8 = 448.0
ACTIVATION_TYPES = {
    WeightFormat.FLOAT32: torch.float32,
    WeightFormat.FLOAT16: torch.float16,
}
"""Precision of features and logits; bfloat16 where a format is not listed, as engines with quantised weights have."""


def rounded_weights(weights: Mapping[str, Tensor], weight_format: WeightFormat) -> dict[str, Tensor]:
    """Return the weights in a format, as float32; biases and norms keep 16 bits, as inference engines keep them."""
    return {name: _rounded(weight, weight_format) for name, weight in weights.items()}


def _rounded(weight: Tensor, weight_format: WeightFormat) -> Tensor:
    if weight_format is WeightFormat.FLOAT32:
        return weight
    if weight_format is WeightFormat.FLOAT16:
        return weight.half().float()
    if weight_format is WeightFormat.BFLOAT16 or weight.dim() < 2:
        return weight.bfloat16().float()
    if weight_format is WeightFormat.FLOAT8:
        scale = weight.abs().max().clamp(min=1e-12) / LARGEST_FLOAT8
        rounded: Tensor = (weight / scale).to(torch.float8_e4m3fn).float() * scale
        return rounded
    return to_integers(weight, bits=INTEGER_BITS[weight_format])


def rounded_activations(values: Tensor, weight_format: WeightFormat) -> Tensor:
    """Return features or logits in the precision that an engine with weights in this format computes them in."""
    return values.to(ACTIVATION_TYPES.get(weight_format, torch.bfloat16)).float()


def to_integers(weight: Tensor, *, bits: int) -> Tensor:
    """Return a tensor rounded to the nearest multiple of its largest magnitude over 2^(bits - 1) - 1."""
    spacing = weight.abs().max().clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    rounded: Tensor = (weight / spacing).round() * spacing
    return rounded


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
    """Samples responses token by token with the weights that were loaded last."""

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
    def sample(
        self, prompts: TaskPrompts, *, copies: int, mismatch: EngineMismatch, update: int, limit: int | None = None
    ) -> SampledResponses:
        """Return `copies` responses in a row to every prompt [B], with the mismatch of an update: [B * copies].

        Args: limit: the most tokens of a response, if that is less than the task's.
        """
        longest = self._limit if limit is None else min(limit, self._limit)
        features, cache = self._policy.trunk.read_prompt(prompts.tokens, copies=copies)
        going, steps = features.new_ones(len(features), dtype=torch.bool), list[_SampledToken]()
        for _ in range(longest):
            steps.append(self._sample_token(features, going, mismatch=mismatch, update=update))
            token = steps[-1].token
            going = going & (token != EOS)
            if len(steps) == longest or not going.any():
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
            noise = scale * torch.randn((len(features), N_EXPERTS), generator=self._generator)
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
        loses = torch.rand(len(logprobs), generator=self._generator) < share
        first = (torch.rand(len(logprobs), generator=self._generator) * lengths).long()
        lost = torch.arange(logprobs.shape[1]) >= first[:, None]
        return logprobs.masked_fill(loses[:, None] & lost, 0.0)


def _padded(columns: list[Tensor], missing: int) -> Tensor:
    """Return columns [B, ...] as [B, L, ...], with `missing` more positions of zeros, which are EOS."""
    values = torch.stack(columns, dim=1)
    if not missing:
        return values
    return torch.cat([values, values.new_zeros((len(values), missing, *values.shape[2:]))], dim=1)


def nucleus_logprobs(logprobs: Tensor, *, top_p: float) -> Tensor:
    """Return log-probs [B, V] of the smallest set of symbols that reaches top_p, renormalised; the rest are -inf."""
    if top_p >= 1.0:
        return logprobs
    ranked, order = logprobs.sort(dim=-1, descending=True)
    held_before = ranked.exp().cumsum(dim=-1) - ranked.exp()
    outside = torch.zeros_like(held_before, dtype=torch.bool).scatter(1, order, held_before >= top_p)
    return logprobs.masked_fill(outside, float("-inf")).log_softmax(dim=-1)
