"""Computes exact divergences block by block, with numpy on the host and torch on a device; each logit is read once.

The arithmetic is float64. The difference of two log-sum-exps has an error of 1e-6 in float32, twice a healthy KL, and
of 1e-16 in float64. On a CPU this is faster than accurate float32, because a block stays in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays, functions_of
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.inputs.logits import CheckedLogits


@dataclass(frozen=True)
class Softmax:
    """The unnormalised softmax of the last axis: the maximum of `logits` is 0, `weights` is exp(`logits`)."""

    xp: Arrays
    logits: Array
    weights: Array
    total: Array
    """[...]: the sum of the weights."""

    @classmethod
    def of(cls, logits: Array) -> Softmax:
        """Return the softmax of float64 logits; all NaN if no logit is finite or one is NaN."""
        xp = functions_of(logits)
        shifted = logits - xp.max(logits, -1)[..., None]
        weights = xp.exp(shifted)
        return cls(xp, shifted, weights, xp.sum(weights, -1))

    def mean(self, values: Array) -> Array:
        """Return the expectation of values; where the probability is 0 the value is ignored, even if it is NaN."""
        weighted = self.weights * self.xp.where(self.weights == 0.0, 0.0, values)
        return self.xp.sum(weighted, -1) / self.total

    def entropy(self) -> Array:
        """Return the entropy in nats, [...]."""
        return self.xp.log(self.total) - self.mean(self.logits)

    def probabilities(self) -> Array:
        """Return the normalised probabilities."""
        return self.weights / self.total[..., None]


def blockwise_divergences(logits: CheckedLogits, *, rollout: str, target: str, tv: bool) -> dict[str, Array]:
    """Return the divergences at counting tokens, float64 [B, T] by quantity; other entries are undefined.

    Args: rollout, target: the argument names of the logits of mu and of the trainer; tv: also total variation.
    Source: formulas, section 4.
    """
    quantities = ("kl", "reverse_kl", "entropy_rollout", "entropy", *(("tv",) if tv else ()))
    empty = functions_of(logits.mask).empty
    found = {quantity: empty(logits.mask.shape, "f8", logits.device) for quantity in quantities}
    with np.errstate(all="ignore"):
        for block in logits.blocks():
            p, q = (Softmax.of(logits.read(name, block)) for name in (rollout, target))
            for quantity, array in _divergences(p, q, tv=tv).items():
                found[quantity][block] = to_computable(array, logits.device)
    return found


def _divergences(p: Softmax, q: Softmax, *, tv: bool) -> dict[str, Array]:
    xp = p.xp
    # e up to a constant: the two maxima are omitted here and in the log-mean.
    e = q.logits - p.logits
    log_mean_exp = xp.log(q.total / p.total)
    found = {
        "kl": xp.at_least(log_mean_exp - p.mean(e), 0.0),
        "reverse_kl": xp.at_least(q.mean(e) - log_mean_exp, 0.0),
        "entropy_rollout": p.entropy(),
        "entropy": q.entropy(),
    }
    if tv:
        found["tv"] = xp.sum(xp.abs(p.probabilities() - q.probabilities()), -1) / 2
    return found
