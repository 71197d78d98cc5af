"""The sums that the divergences of a token follow from; those of parts of the vocabulary merge exactly.

For one part of the vocabulary with logits a of mu and b of the trainer, p's sums are over exp(a - max a), q's over
exp(b - max b), and e = (b - max b) - (a - max a). With E the expectation under a sum's own policy, on the whole
vocabulary

    KL(p||q) = log(Zq/Zp) - E_p[e]      KL(q||p) = E_q[e] - log(Zq/Zp)      H(p) = log Zp - E_p[a - max a]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Arrays, functions_of, is_tensor


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


@dataclass(frozen=True)
class PolicySums:
    """The sums of one policy over a part of the vocabulary, [...] float64 each."""

    top: Array
    """The largest logit, -inf if the part has no mass."""
    total: Array
    sum_e: Array
    sum_logits: Array
    """Of the logits relative to the largest one."""
    sum_squares: Array
    """Of the squared weights."""

    @classmethod
    def of(cls, softmax: Softmax, *, e: Array, squares: bool) -> PolicySums:
        """Return the sums of a softmax; with `squares` false, `sum_squares` is NaN."""
        weights = softmax.weights
        summed = softmax.xp.sum_product(weights, weights, -1) if squares else softmax.total * np.nan
        return cls(softmax.top, softmax.total, softmax.sum(e), softmax.sum(softmax.logits), summed)

    def fall_to(self, top: Array, xp: Arrays) -> Array:
        """Return by how much each shifted logit changes when the maximum becomes `top`, at least as large."""
        return xp.where(self.top == -np.inf, 0.0, self.top - top)

    def moved(self, top: Array, *, fall: Array, delta: Array, xp: Arrays) -> PolicySums:
        """Return the same sums relative to another maximum; delta: the change of each e."""
        kept = xp.exp(fall)
        total = self.total * kept
        # As in the softmax of the whole vocabulary, a probability that underflows has no part in a divergence.
        sum_e = xp.where(total == 0.0, 0.0, (self.sum_e + delta * self.total) * kept)
        sum_logits = (self.sum_logits + fall * self.total) * kept
        return PolicySums(top, total, sum_e, sum_logits, self.sum_squares * kept * kept)

    def added(self, other: PolicySums) -> PolicySums:
        """Return the sums of two disjoint parts relative to the same maximum."""
        return PolicySums(
            self.top,
            self.total + other.total,
            self.sum_e + other.sum_e,
            self.sum_logits + other.sum_logits,
            self.sum_squares + other.sum_squares,
        )

    def mean(self, total: Array) -> Array:
        """Return the expectation of what `total` sums."""
        return total / self.total


_NAMES = tuple(field.name for field in fields(PolicySums))


@dataclass(frozen=True)
class DivergenceSums:
    """The sums of both policies over the same part of the vocabulary."""

    p: PolicySums
    q: PolicySums

    @classmethod
    def of(cls, p: Softmax, q: Softmax, *, squares: bool = False) -> DivergenceSums:
        """Return the sums of one part. Args: squares: also those of squared probabilities, else NaN."""
        e = q.logits - p.logits
        return cls(PolicySums.of(p, e=e, squares=False), PolicySums.of(q, e=e, squares=squares))

    @classmethod
    def merged(cls, parts: Iterable[DivergenceSums]) -> DivergenceSums:
        """Return the sums of the union of disjoint parts, at least one. Source: formulas, section 4."""
        return reduce(cls._merge, parts)

    def _merge(self, other: DivergenceSums) -> DivergenceSums:
        xp = functions_of(self.p.top)
        # A maximum that is NaN need not win here: it makes the sums of its own part NaN.
        top_p = xp.where(other.p.top > self.p.top, other.p.top, self.p.top)
        top_q = xp.where(other.q.top > self.q.top, other.q.top, self.q.top)
        first, second = (part._moved(top_p, top_q, xp) for part in (self, other))
        return DivergenceSums(first.p.added(second.p), first.q.added(second.q))

    def _moved(self, top_p: Array, top_q: Array, xp: Arrays) -> DivergenceSums:
        fall_p, fall_q = self.p.fall_to(top_p, xp), self.q.fall_to(top_q, xp)
        # e = (b - max b) - (a - max a): what b's maximum gains e loses, and the reverse for a's.
        delta = fall_q - fall_p
        return DivergenceSums(
            self.p.moved(top_p, fall=fall_p, delta=delta, xp=xp), self.q.moved(top_q, fall=fall_q, delta=delta, xp=xp)
        )

    def arrays(self) -> list[Array]:
        """Return the ten arrays in the order that `of_arrays` takes."""
        return [getattr(sums, name) for sums in (self.p, self.q) for name in _NAMES]

    @classmethod
    def of_arrays(cls, arrays: Sequence[Array]) -> DivergenceSums:
        """Return the sums that `arrays` returned."""
        return cls(PolicySums(*arrays[: len(_NAMES)]), PolicySums(*arrays[len(_NAMES) :]))

    def divergences(self) -> dict[str, Array]:
        """Return the divergences that need one pass, in nats, and sum_v q_v^2 as `pi_squared`, NaN without squares.

        Source: formulas, section 4.
        """
        p, q, xp = self.p, self.q, functions_of(self.p.top)
        log_mean_exp = xp.log(q.total / p.total)
        return {
            "kl": xp.at_least(log_mean_exp - p.mean(p.sum_e), 0.0),
            "reverse_kl": xp.at_least(q.mean(q.sum_e) - log_mean_exp, 0.0),
            "entropy_rollout": xp.log(p.total) - p.mean(p.sum_logits),
            "entropy": xp.log(q.total) - q.mean(q.sum_logits),
            "pi_squared": q.sum_squares / (q.total * q.total),
        }

    def half_distance(self, a: Array, b: Array) -> Array:
        """Return the part of total variation that the logits of a part of the vocabulary have, [...].

        Args: self: the sums of the whole vocabulary; a, b: float64 logits of the part, [..., V].
        """
        xp = functions_of(a)
        p, q = (
            xp.exp(logits - sums.top[..., None]) / sums.total[..., None] for logits, sums in ((a, self.p), (b, self.q))
        )
        return xp.sum(xp.abs(p - q), -1) / 2


@dataclass(frozen=True)
class VocabularyShards:
    """The process group whose ranks hold the parts of a vocabulary; None: one process holds it all."""

    group: Any = None

    def merged(self, sums: DivergenceSums) -> DivergenceSums:
        """Return the sums over the whole vocabulary, the same on every rank, by one gather of ten numbers a token."""
        if self.group is None:
            return sums
        xp = functions_of(sums.p.top)
        mine = xp.concatenate([array[None] for array in sums.arrays()])
        return DivergenceSums.merged(DivergenceSums.of_arrays(list(part)) for part in self._gathered(mine))

    def added(self, array: Array) -> Array:
        """Return the sum over the ranks, in their order, so that every rank has the same bits."""
        return array if self.group is None else sum(self._gathered(array))

    def _gathered(self, array: Array) -> list[Array]:
        torch = sys.modules["torch"]
        tensor = array if is_tensor(array) else torch.from_numpy(array)
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size(self.group))]
        torch.distributed.all_gather(parts, tensor, group=self.group)
        return parts if is_tensor(array) else [part.numpy() for part in parts]
