"""The softmax of a block of logits, unnormalised, so that parts of a vocabulary can be joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays, functions_of


@dataclass(frozen=True)
class Softmax:
    """The unnormalised softmax of the last axis: the maximum of `logits` is 0, `weights` is exp(`logits`)."""

    xp: Arrays
    top: Array
    """[...]: the largest logit as it was given, -inf if there is no mass."""
    logits: Array
    weights: Array
    total: Array
    """[...]: the sum of the weights."""

    @classmethod
    def of(cls, logits: Array) -> Softmax:
        """Return the softmax of float64 logits; its means are NaN if no logit is finite or one is NaN."""
        xp = functions_of(logits)
        top = xp.max(logits, -1)
        # A part of the vocabulary may have no mass, as the padding of its last shard has none.
        shifted = logits - xp.where(top == -np.inf, 0.0, top)[..., None]
        weights = xp.exp(shifted)
        return cls(xp, top, shifted, weights, xp.sum(weights, -1))

    def sum(self, values: Array) -> Array:
        """Return the weighted sum of values; where the probability is 0 the value is ignored, even if it is NaN."""
        return self.xp.sum(self.weights * self.xp.where(self.weights == 0.0, 0.0, values), -1)

    def probabilities(self) -> Array:
        """Return the normalised probabilities."""
        return self.weights / self.total[..., None]
