"""The tokens of a block of sequences: which of them are valid, and what every policy says of them.

Arrays are [policies, ...] or, where all policies share them, [...]: time and sequences in the order that is fastest
to reduce, in float64 or, where that is as good, float32. Terms are exactly 0 at a token that is not valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.inputs import POLICIES, Inputs
from trmon_client.core.schema import DType

MAX_LOGPROB = 1e-4
"""Above it a log-prob is no rounding of 0 but a probability that cannot be."""
MIN_LOGPROB = -1000.0
"""At or below it a log-prob is a sentinel."""

TIME_FIRST_BELOW = 256
"""Shorter horizons are reduced over the leading axis, all sequences side by side: rows that short do not vectorise."""


@dataclass(frozen=True)
class Tokens:
    """Validity, log-probs and probabilities of every token of a block."""

    xp: Arrays
    dtype: DType
    """Of the terms: f8 or f4."""
    axis: int
    """The axis of time: -1, or -2 where sequences come last."""
    policies: tuple[str, ...]
    counts: Array
    """bool [...]: the mask."""
    valid: Array
    """bool [...]: counts and is not invalid."""
    weight: Array
    """[...]: 1 where valid."""
    logp: Array
    """[policies, ...]"""
    bounded: Array
    """[policies, ...]: log-probs, positive ones taken as 0; float64."""
    p: Array
    """[policies, ...]: probabilities, at most 1; float64."""

    @classmethod
    def of(cls, inputs: Inputs, *, dtype: DType = "f8") -> Tokens:
        """Return the tokens of a block.

        Args: dtype: f4 for log-probs that float32 holds, so that nothing of them is lost.
        Source: formulas, section 2.
        """
        xp = inputs.functions
        policies = tuple(name for name in POLICIES if name in inputs.logprobs)
        axis = -2 if inputs.mask.shape[1] < TIME_FIRST_BELOW else -1
        raw = _stacked(xp, [arranged(inputs.logprobs[name], axis=axis) for name in policies], dtype)
        counts = arranged(inputs.mask, axis=axis)
        valid = counts
        for sound in (raw <= MAX_LOGPROB) & (raw > MIN_LOGPROB):
            valid = valid & sound
        logp = xp.where(valid, raw, 0.0)
        weight = xp.cast(valid, dtype)
        # The probability of the rest, 1 - p, and correlations have no digits to lose.
        bounded = xp.at_most(xp.cast(logp, "f8"), 0.0)
        p = xp.exp(bounded) * xp.cast(valid, "f8")
        return cls(xp, dtype, axis, policies, counts, valid, weight, logp, bounded, p)


def arranged(array: Array, *, axis: int) -> Array:
    """Return [B, T] with time on the axis, as a view."""
    return array if axis == -1 else array.T


def _stacked(xp: Arrays, arrays: list[Array], dtype: DType) -> Array:
    first = arrays[0]
    stack = xp.empty((len(arrays), *first.shape), dtype, getattr(first, "device", None))
    for row, array in zip(stack, arrays, strict=True):
        row[...] = array
    return stack
