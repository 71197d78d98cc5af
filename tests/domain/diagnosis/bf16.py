"""Healthy engines: one softmax, once over exact logits and once over logits that were rounded to bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

VOCABULARY = 64
POOL_TOKENS = 1 << 17
LOGIT_SPREAD = 4.0
UPDATE_SPREAD = 0.01
"""How far an update moves logits."""


def rounded(x: Array) -> Array:
    """Return float32 numbers rounded to the nearest bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)).view(np.float32)


@dataclass(frozen=True, slots=True)
class Pool:
    """Log-probs of sampled tokens, [POOL_TOKENS] each: of the engine, of the trainer, and of the trainer's update."""

    rollout: Array
    old: Array
    new: Array


@cache
def pool(seed: int = 0) -> Pool:
    """Return tokens sampled by the engine whose logits, and log-probs, are rounded."""
    rng = np.random.default_rng(seed)
    parts = [_tokens(rng, 1 << 14) for _ in range(POOL_TOKENS >> 14)]
    return Pool(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _tokens(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    logits = rng.normal(0, LOGIT_SPREAD, (n, VOCABULARY)).astype(np.float32)
    rollout, old = _log_softmax(rounded(logits)), _log_softmax(logits)
    new = _log_softmax(logits + rng.normal(0, UPDATE_SPREAD, logits.shape).astype(np.float32))
    sampled = (np.exp(rollout).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    rows = np.arange(n)
    return rounded(rollout[rows, sampled]), old[rows, sampled], new[rows, sampled]


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), np.float32)
