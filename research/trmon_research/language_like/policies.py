"""Tokens of text: their log-probs under the engine (mu), the trainer at the rollout's weights (old) and updated (pi).

A token is certain (one candidate near probability 1, the rest one tail), uncertain (16 candidates) or garbage (one of
thousands of equal candidates). The engine's logits are the trainer's with noise; mu samples, so E_mu[pi/mu] = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

CANDIDATES = 16
UNCERTAIN_ENTROPY = (-1.2, 0.4)
"""Decimal logarithms of the entropies of uncertain tokens, in nats: uniform between them."""
CERTAIN_TAIL = (-9.0, -3.0)
"""Decimal logarithms of 1 - p of certain tokens: uniform between them."""
GARBAGE_NATS = (6.0, 10.5)
BURST = 8
"""Tokens in a row that share their chance to be uncertain."""


@dataclass(frozen=True, slots=True)
class Text:
    """How certain the trainer's policy is: the shares of uncertain and garbage tokens, a factor on entropies."""

    uncertain: float = 0.3
    entropy: float = 1.0
    garbage: float = 0.0


@dataclass(frozen=True, slots=True)
class Engine:
    """How the sampler differs from the trainer at the rollout's weights.

    `logit_sd` is numerical noise, `flip_share` the tokens that another expert computes (noise `flip_sd`), `other_share`
    those scored by an unrelated model, `weights_sd` and `sharper` the change of the weights since the sampler's,
    `sequence_sd` a factor on logits for each sequence.
    """

    logit_sd: float = 0.025
    flip_share: float = 0.0
    flip_sd: float = 1.0
    other_share: float = 0.0
    weights_sd: float = 0.0
    sharper: float = 0.0
    temperature: float = 1.0
    top_p: float = 1.0
    sequence_sd: float = 0.0


@dataclass(frozen=True, slots=True)
class Update:
    """The trainer's own change of weights between pi_old and pi, on logits."""

    weights_sd: float = 0.0
    sharper: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probs [n] in float32 nats of the sampled tokens, and the mean entropy of the trainer's policy."""

    mu: Floats
    old: Floats
    pi: Floats
    entropy: float


def sample(
    rng: np.random.Generator, text: Text, engine: Engine, update: Update, *, sequence_of: NDArray[np.intp]
) -> TokenLogprobs:
    """Return the tokens that mu samples. Args: sequence_of: the sequence of each token, [n]."""
    n = len(sequence_of)
    chance = np.repeat(rng.gamma(2.0, 0.5, -(-n // BURST)), BURST)[:n] * text.uncertain
    is_uncertain = rng.random(n) < chance
    is_garbage = rng.random(n) < text.garbage
    is_uncertain &= ~is_garbage
    certain = np.flatnonzero(~is_uncertain & ~is_garbage)
    uncertain, garbage = np.flatnonzero(is_uncertain), np.flatnonzero(is_garbage)
    factor = np.maximum(0.3, 1.0 + engine.sequence_sd * rng.standard_normal(int(sequence_of.max()) + 1))[sequence_of]
    mu, old, pi = found = np.empty((3, n), np.float32)
    entropies = 0.0
    for at, draw in ((certain, _certain), (uncertain, _uncertain), (garbage, _garbage)):
        if len(at):
            found[:, at], entropy = draw(rng, text, engine, update, factor[at].astype(np.float32))
            entropies += entropy
    return TokenLogprobs(mu, old, pi, entropies / n)


def _noise(rng: np.random.Generator, shape: tuple[int, ...], sd: float) -> Floats:
    """Return noise whose scale differs between tokens: some are off by several times the usual."""
    scale = np.exp(0.6 * rng.standard_normal((shape[0], *(1,) * (len(shape) - 1)), np.float32) - np.float32(0.36))
    return np.float32(sd) * scale * rng.standard_normal(shape, np.float32)


def _sampler_logits(rng: np.random.Generator, logits: Floats, engine: Engine, factor: Floats) -> Floats:
    """Return the engine's logits of tokens with the trainer's `logits` [m, candidates]."""
    sd = float(np.hypot(engine.logit_sd, engine.weights_sd))
    scale = factor * np.float32((1.0 - engine.sharper) / engine.temperature)
    sampler = logits + _noise(rng, logits.shape, sd)
    if engine.flip_share:
        flipped = np.flatnonzero(rng.random(len(logits)) < engine.flip_share)
        sampler[flipped] += rng.normal(0, engine.flip_sd, (len(flipped), logits.shape[1])).astype(np.float32)
    if engine.other_share:
        other = np.flatnonzero(rng.random(len(logits)) < engine.other_share)
        sampler[other] = np.roll(sampler[other], 1, axis=1)
    return sampler * scale[:, None]


def _updated(rng: np.random.Generator, logits: Floats, update: Update) -> Floats:
    if not update.weights_sd and not update.sharper:
        return logits
    return logits * np.float32(1.0 + update.sharper) + _noise(rng, logits.shape, update.weights_sd)


def _log_softmax(logits: Floats) -> Floats:
    """Return log-probs in float32, where a certain token is often exactly 0."""
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def _drawn(
    rng: np.random.Generator, logits: Floats, engine: Engine, update: Update, factor: Floats
) -> tuple[Floats, float]:
    """Sample one candidate of each token, [m, candidates]; return the three log-probs [3, m] and the sum of entropy."""
    sampler = _log_softmax(_sampler_logits(rng, logits, engine, factor))
    if engine.top_p < 1:
        sampler = _nucleus(sampler, engine.top_p)
    below = np.exp(sampler).cumsum(1)
    chosen = (below < rng.random((len(logits), 1), np.float32) * below[:, -1:]).sum(1)
    chosen = np.minimum(chosen, logits.shape[1] - 1)
    old = _log_softmax(logits)
    updated = _updated(rng, logits, update)
    pi = old if updated is logits else _log_softmax(updated)
    rows = np.arange(len(logits))
    return np.stack([of[rows, chosen] for of in (sampler, old, pi)]), float(-(np.exp(old) * old).sum())


def _nucleus(logprobs: Floats, top_p: float) -> Floats:
    """Return the log-probs renormalised over the fewest candidates that hold `top_p`."""
    order = np.argsort(-logprobs, axis=1)
    ranked = np.exp(np.take_along_axis(logprobs, order, 1))
    keep = np.zeros(logprobs.shape, bool)
    np.put_along_axis(keep, order, ranked.cumsum(1) - ranked < top_p, 1)
    return _log_softmax(np.where(keep, logprobs, np.float32(-1e4)))


def _uncertain(
    rng: np.random.Generator, text: Text, engine: Engine, update: Update, factor: Floats
) -> tuple[Floats, float]:
    target = np.minimum(10.0 ** rng.uniform(*UNCERTAIN_ENTROPY, len(factor)) * text.entropy, 2.7)
    entropies, scales = _scale_of_entropy()
    scale = np.interp(target, entropies, scales).astype(np.float32)
    logits = rng.standard_normal((len(factor), CANDIDATES), np.float32) * scale[:, None]
    return _drawn(rng, logits, engine, update, factor)


@cache
def _scale_of_entropy() -> tuple[Floats, Floats]:
    """Return mean entropies of candidates with normal logits, rising, and the scales of the logits that give them."""
    scales = np.geomspace(0.1, 60.0, 60)
    normal = np.random.default_rng(0).standard_normal((2000, CANDIDATES))
    entropies = []
    for scale in scales:
        logprobs = _log_softmax(scale * normal)
        entropies.append(-(np.exp(logprobs) * logprobs).sum(1).mean())
    return np.array(entropies)[::-1], scales[::-1]


def _certain(
    rng: np.random.Generator, text: Text, engine: Engine, update: Update, factor: Floats
) -> tuple[Floats, float]:
    tail = 10.0 ** rng.uniform(*CERTAIN_TAIL, len(factor))
    logits = np.zeros((len(factor), 2), np.float32)
    logits[:, 0] = np.log1p(-tail) - np.log(tail)
    return _drawn(rng, logits, engine, update, factor)


def _garbage(
    rng: np.random.Generator, text: Text, engine: Engine, update: Update, factor: Floats
) -> tuple[Floats, float]:
    """Draw from nearly equal candidates: the noise of each token's logit is all that differs."""
    old = -rng.uniform(*GARBAGE_NATS, len(factor)).astype(np.float32)
    sd = float(np.hypot(engine.logit_sd, engine.weights_sd))
    # A sampler prefers what it overrates: its noise, weighted by the probability, has the mean sd^2.
    mu = old + rng.normal(sd * sd / 2, sd, len(old)).astype(np.float32)
    pi = old + rng.normal(-(update.weights_sd**2) / 2, update.weights_sd, len(old)).astype(np.float32)
    return np.stack([mu, old, pi]), float(-old.sum())
