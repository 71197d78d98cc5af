"""Random pairs of softmax policies, and a reference implementation of divergences in extended precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
SHAPES = ("random", "peaked", "truncated", "flat")


@dataclass(frozen=True)
class Pair:
    """Logits float32 [B, T, V] of mu and the trainer, tokens sampled from mu [B, T], and a mask."""

    rollout_logits: Numbers
    logits: Numbers
    token_ids: Numbers
    mask: Numbers

    @property
    def rollout_logprobs(self) -> Numbers:
        """mu's log-probs of the sampled tokens."""
        return taken(log_softmax(self.rollout_logits), self.token_ids)

    @property
    def logprobs(self) -> Numbers:
        """The trainer's log-probs of the sampled tokens."""
        return taken(log_softmax(self.logits), self.token_ids)

    def topk(self, k: int) -> tuple[Numbers, Numbers]:
        """Return ids and log-probs [B, T, k] as an engine does, the most probable first."""
        ids = np.argsort(-self.rollout_logits, -1, kind="stable")[..., :k]
        return ids, np.take_along_axis(log_softmax(self.rollout_logits), ids, -1)


def pair(seed: int, *, shape: str = "random", size: tuple[int, int, int] = (3, 5, 41), noise: float = 0.3) -> Pair:
    """Return a pair whose logits differ by noise; with shape "truncated", mu samples from its nucleus only."""
    random = np.random.default_rng(seed)
    scale = {"peaked": 12.0, "flat": 0.1}.get(shape, 3.0)
    rollout = random.normal(0, scale, size)
    if shape == "truncated":
        rollout = np.where(rollout < np.quantile(rollout, 0.6, axis=-1, keepdims=True), -np.inf, rollout)
    new = rollout + random.normal(0, noise, size)
    if shape == "truncated":
        new = np.where(np.isfinite(new), new, random.normal(-3, 1, size))
    gumbel = random.gumbel(size=size)
    return Pair(
        rollout.astype(np.float32),
        new.astype(np.float32),
        np.argmax(rollout + gumbel, -1),
        random.random(size[:2]) < 0.8,
    )


def log_softmax(logits: Numbers) -> Numbers:
    """Return log-probs over the last axis, in extended precision."""
    wide = logits.astype(np.longdouble)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def taken(values: Numbers, ids: Numbers) -> Numbers:
    """Return the value at the id of each token."""
    return np.take_along_axis(values, ids[..., None], -1)[..., 0]


def divergences(rollout_logits: Numbers, logits: Numbers) -> dict[str, Numbers]:
    """Return the divergences at each position [B, T] from their definitions, in extended precision."""
    log_p, log_q = log_softmax(rollout_logits), log_softmax(logits)
    p, q = np.exp(log_p), np.exp(log_q)
    with np.errstate(all="ignore"):
        return {
            "kl": np.where(p > 0, p * (log_p - log_q), 0).sum(-1),
            "reverse_kl": np.where(q > 0, q * (log_q - log_p), 0).sum(-1),
            "tv": np.abs(p - q).sum(-1) / 2,
            "entropy_rollout": -np.where(p > 0, p * log_p, 0).sum(-1),
            "entropy": -np.where(q > 0, q * log_q, 0).sum(-1),
        }
