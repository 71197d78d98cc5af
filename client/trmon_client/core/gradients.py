"""Computes the moments of gradients [K, D] of K parts of a batch, such as its micro-batches.

A random projection that preserves inner products on average may stand in for each gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trmon_client.core.arrays import Array


@dataclass(frozen=True, slots=True)
class GradientMoments:
    """`signal`: |E g|^2; `noise`: tr Var of the gradient of one part; `n_parts`: K.

    Both estimates are unbiased for independent parts of one distribution, so `signal` may be negative.
    """

    signal: float
    noise: float
    n_parts: int

    @property
    def snr(self) -> float:
        """The signal-to-noise ratio of the mean of the parts, |E g|^2/(tr Var g/K); nan without noise.

        Its inverse times the size of the batch is the gradient noise scale.
        Source: McCandlish et al., arXiv 1812.06162.
        """
        return self.n_parts * self.signal / self.noise if self.noise > 0 else math.nan


def cosine(first: Array, second: Array) -> float:
    """Return the cosine of two gradients [D] or their projections; nan if one is 0 or not finite.

    Source: formulas, section 5.
    """
    norms = math.sqrt(float(first @ first)) * math.sqrt(float(second @ second))
    return min(1.0, max(-1.0, float(first @ second) / norms)) if 0 < norms < math.inf else math.nan


def gradient_moments(parts: Array) -> GradientMoments:
    """Return the moments of gradients [K, D]; nan with fewer than two.

    Source: McCandlish et al., arXiv 1812.06162, appendix A; formulas, section 5.
    """
    k = len(parts)
    if k < 2:
        return GradientMoments(math.nan, math.nan, k)
    mean = parts.mean(0)
    noise = float(((parts - mean) ** 2).sum()) / (k - 1)
    return GradientMoments(float(mean @ mean) - noise / k, noise, k)


def progress_proxy(reference: Array, parts: Array) -> float:
    """Return <grad J, E g>^2/(tr Var g + |Bias g|^2) for the mean g of the parts; nan if the denominator is 0.

    That it ranks corrections of off-policy gradients is a conjecture of its source.
    Args: reference: unbiased gradients of J, [R, D], from other samples than the parts, as of fresh rollouts, at least
        two; or the gradient of J itself, [D], which counts as known without noise.
        parts: [K, D], as the trainer's loss gives them, at least two.
    Errors: ValueError naming the shapes, if they do not fit.
    Source: [DRIFT], conjecture 1; formulas, section 5.
    """
    terms = progress_terms(reference, parts)
    denominator = terms.variance + max(0.0, terms.squared_bias)
    return terms.inner_product**2 / denominator if denominator > 0 else math.nan


@dataclass(frozen=True, slots=True)
class ProgressTerms:
    """Unbiased estimates of <grad J, E g>, of tr Var g of the mean of the parts, and of |E g - grad J|^2."""

    inner_product: float
    variance: float
    squared_bias: float


def progress_terms(reference: Array, parts: Array) -> ProgressTerms:
    """Return the terms of the progress proxy; reference and parts: as there."""
    if parts.ndim != 2 or reference.ndim not in (1, 2) or reference.shape[-1:] != parts.shape[-1:]:
        got = f"reference {tuple(reference.shape)} and parts {tuple(parts.shape)}"
        raise ValueError(f"{got} do not fit; expected [R, D] or [D], and [K, D]")
    is_known = reference.ndim == 1
    target, mean = reference if is_known else reference.mean(0), parts.mean(0)
    own = gradient_moments(parts)
    variance = own.noise / own.n_parts
    other = 0.0 if is_known else gradient_moments(reference).noise / len(reference)
    # The distance of two noisy means exceeds that of their expectations by both variances.
    squared_bias = float(((mean - target) ** 2).sum()) - variance - other
    return ProgressTerms(float(target @ mean), variance, squared_bias)
