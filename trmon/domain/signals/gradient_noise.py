"""The signal and the noise in a step's gradient, from its norm and the power that the columns bound.

proxy1 is a norm by the parameters, which the trainer sends, and proxy2 one by the logits. Their difference has no unit
of its own: how it changes over a run tells, not how large it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec


class GradientNoise(msgspec.Struct, frozen=True):
    """proxy1 and the bounds of proxy3 at the newest step; None where an input is missing."""

    signal_strength: float | None = None
    pure_noise_low: float | None = None
    pure_noise_high: float | None = None


def gradient_noise(numbers: Mapping[str, float], *, grad_norm: float) -> GradientNoise:
    """Return the noise of a step.

    Args: numbers: the bounds of proxy2, and `n_sequences`, N; grad_norm: before clipping.
    Source: [DRIFT]; verl's variance proxies; formulas, section 5.
    """
    if math.isnan(grad_norm):
        return GradientNoise()
    signal, others = grad_norm * grad_norm, numbers.get("n_sequences", 0.0) - 1.0
    powers = (numbers.get(f"proxy2_total_power_{end}", math.nan) for end in ("low", "high"))
    low, high = (None if math.isnan(power) or others <= 0 else max(0.0, power - signal) / others for power in powers)
    return GradientNoise(signal, low, high)
