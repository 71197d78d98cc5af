"""The rollout engine: the same network written again in NumPy, with a key-value cache, and faults to inject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon_research.detection.faults import FaultEffect
from trmon_research.detection.running_sums import EOS, MAX_RESPONSE, N_OUTPUTS, PROMPT_LENGTH, Ints, SumPrompts
from trmon_research.detection.sums_model import CONTEXT, EPSILON, HEADS, WIDTH

Single = npt.NDArray[np.float32]
Weights = Mapping[str, Single]
"""A model's parameters by name."""


@dataclass(frozen=True, eq=False)
class SampledResponses:
    """B responses [B, MAX_RESPONSE]: tokens, the log-probs that the engine reports, and the chosen experts."""

    tokens: Ints
    logprobs: Single
    experts: Ints
    lengths: Ints
    truncated: npt.NDArray[np.bool_]


class NumpyEngine:
    """Samples responses with the weights it was given last."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._weights: Weights = {}

    def load(self, weights: Weights, *, bits: int | None) -> None:
        """Take new weights, rounded to `bits` per weight; None keeps them as they are."""
        self._weights = weights if bits is None else {name: rounded(value, bits) for name, value in weights.items()}

    def sample(self, prompts: SumPrompts, effect: FaultEffect) -> SampledResponses:
        """Return one response for each prompt."""
        n = len(prompts.tokens)
        keys, values = (np.zeros((n, HEADS, CONTEXT, WIDTH // HEADS), np.float32) for _ in range(2))
        self._cache(prompts.tokens[:, :-1], keys, values)
        token = prompts.tokens[:, -1]
        tokens, experts = (np.zeros((n, MAX_RESPONSE), np.int64) for _ in range(2))
        logprobs = np.zeros((n, MAX_RESPONSE), np.float32)
        for step in range(MAX_RESPONSE):
            reported, chosen = self._next(token, PROMPT_LENGTH - 1 + step, keys, values, effect)
            token = self._draw(reported)
            tokens[:, step], experts[:, step] = token, chosen
            logprobs[:, step] = reported[np.arange(n), token]
        ended = tokens == EOS
        lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, MAX_RESPONSE)
        logprobs = self._faulty(logprobs, lengths, effect)
        return SampledResponses(tokens, logprobs, experts, lengths, ~ended.any(axis=1))

    def _cache(self, tokens: Ints, keys: Single, values: Single) -> None:
        weights, length = self._weights, tokens.shape[1]
        states = _normed(weights["embedding"][tokens] + weights["position"][:length])
        made = states @ weights["qkv"][:, WIDTH:]
        split = (len(tokens), length, HEADS, WIDTH // HEADS)
        keys[:, :, :length] = made[..., :WIDTH].reshape(split).transpose(0, 2, 1, 3)
        values[:, :, :length] = made[..., WIDTH:].reshape(split).transpose(0, 2, 1, 3)

    def _next(self, token: Ints, at: int, keys: Single, values: Single, effect: FaultEffect) -> tuple[Single, Ints]:
        """Return the log-probs [B, N_OUTPUTS] after a token, and the expert that it met."""
        weights, n = self._weights, len(token)
        states = weights["embedding"][token] + weights["position"][at]
        query, key, value = (_normed(states) @ weights["qkv"]).reshape(n, 3, HEADS, WIDTH // HEADS).swapaxes(0, 1)
        keys[:, :, at], values[:, :, at] = key, value
        scores = (keys[:, :, : at + 1] @ query[..., None])[..., 0] * np.float32((WIDTH // HEADS) ** -0.5)
        attention = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attention /= attention.sum(axis=-1, keepdims=True)
        states = states + (attention[:, :, None] @ values[:, :, : at + 1]).reshape(n, WIDTH) @ weights["mix"]
        inner = _normed(states)
        routing = inner @ weights["router"]
        seen = routing + effect.router_noise * self._rng.standard_normal(routing.shape, np.float32)
        chosen = seen.argmax(axis=1)
        gate = np.exp(_log_softmax(routing))[np.arange(n), chosen]
        hidden = np.maximum(inner[:, None] @ weights["enter"][chosen], 0.0) * gate[:, None, None]
        logits = _normed(states + (hidden @ weights["leave"][chosen])[:, 0]) @ weights["output"]
        logits += effect.engine_noise * self._rng.standard_normal(logits.shape, np.float32)
        return nucleus(_log_softmax(logits / np.float32(effect.temperature)), effect.top_p), chosen

    def _draw(self, logprobs: Single) -> Ints:
        """Return a token for each row; uniform ones where the weights are not numbers."""
        mass = np.exp(np.where(np.isnan(logprobs), 0.0, logprobs)).cumsum(axis=1)
        drawn = (self._rng.random((len(mass), 1)) * mass[:, -1:] > mass).sum(axis=1)
        return np.minimum(drawn, N_OUTPUTS - 1)

    def _faulty(self, logprobs: Single, lengths: Ints, effect: FaultEffect) -> Single:
        if effect.is_shifted:
            logprobs = np.roll(logprobs, 1, axis=1)
        if effect.padded_share:
            lost = self._rng.random((len(lengths), 1)) < effect.padded_share
            first = (self._rng.random((len(lengths), 1)) * lengths[:, None]).astype(np.int64)
            logprobs = np.where(lost & (np.arange(MAX_RESPONSE) >= first), np.float32(0.0), logprobs)
        return logprobs


def rounded(value: Single, bits: int) -> Single:
    """Return weights on a grid of 2^bits - 1 values per tensor."""
    scale = np.abs(value).max() / (2 ** (bits - 1) - 1)
    found: Single = (np.round(value / scale) * scale).astype(np.float32)
    return found


def nucleus(logprobs: Single, top_p: float) -> Single:
    """Return log-probs over the fewest tokens that reach top_p, renormalised; -inf elsewhere."""
    if top_p >= 1.0:
        return logprobs
    order = np.argsort(-logprobs, axis=1)
    ranked = np.exp(np.take_along_axis(logprobs, order, axis=1))
    kept = np.zeros(logprobs.shape, bool)
    np.put_along_axis(kept, order, ranked.cumsum(axis=1) - ranked < top_p, axis=1)
    return _log_softmax(np.where(kept, logprobs, np.float32(-np.inf)))


def _normed(states: Single) -> Single:
    found: Single = states / np.sqrt(np.square(states).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    return found


def _log_softmax(logits: Single) -> Single:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    found: Single = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
