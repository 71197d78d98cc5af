"""The tokens of a block of sequences: which are valid, and their log-probs under each policy.

Arrays are float64 [policies, ...], or [...] if all policies share them, with time and sequences in the order that is
fastest to reduce. Terms are exactly 0 at tokens that are not valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from trmon_client.core.arrays.backend import Array, Arrays
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs
from trmon_client.core.inputs.token_validity import is_sound

TIME_FIRST_BELOW = 256
"""Shorter horizons are reduced with time as the leading axis, because rows that short do not vectorise."""


@dataclass(frozen=True)
class TokenBlock:
    """The validity, log-probs and probabilities of the tokens of a block."""

    xp: Arrays
    axis: int
    """The time axis: -1, or -2 if sequences come last."""
    policies: tuple[str, ...]
    counts: Array
    """bool [...]: the mask."""
    valid: Array
    """bool [...]: the token counts and is not invalid."""
    weight: Array
    """[...]: 1 where valid."""
    logp: Array
    """[policies, ...]"""
    bounded: Array
    """[policies, ...]: log-probs, with positive ones taken as 0."""
    p: Array
    """[policies, ...]: probabilities, at most 1."""

    @classmethod
    def of(cls, inputs: CheckedInputs) -> TokenBlock:
        """Return the tokens of a block. Source: formulas, section 2."""
        xp = inputs.functions
        policies = tuple(name for name in POLICIES if name in inputs.logprobs)
        axis = -2 if inputs.mask.shape[1] < TIME_FIRST_BELOW else -1
        counts = valid = time_last(inputs.mask, axis=axis)
        raw = _stacked(xp, [time_last(inputs.logprobs[name], axis=axis) for name in policies], like=counts)
        for sound in is_sound(raw):
            valid = valid & sound
        logp = xp.where(valid, raw, 0.0)
        weight = xp.cast(valid, "f8")
        bounded = xp.at_most(logp, 0.0)
        p = xp.exp(bounded) * weight
        return cls(xp, axis, policies, counts, valid, weight, logp, bounded, p)


def time_last(array: Array, *, axis: int) -> Array:
    """Return an array [B, T] with time on the axis, as a view."""
    return array if axis == -1 else array.T


def _stacked(xp: Arrays, arrays: list[Array], *, like: Array) -> Array:
    stack = xp.empty((len(arrays), *like.shape), "f8", getattr(like, "device", None))
    for row, array in zip(stack, arrays, strict=True):
        row[...] = array
    return stack
