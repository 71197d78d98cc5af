"""Valid tokens: those that the statistics and the divergences include."""

from __future__ import annotations

from typing import Any

from trmon_client.core.arrays.backend import Array
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs

MAX_LOGPROB = 1e-4
"""Above it a log-prob is not 0 up to rounding, but an impossible probability."""
MIN_LOGPROB = -1000.0
"""At or below it a log-prob is a sentinel."""


def valid_mask(
    *, mask: Any = None, rollout_logprobs: Any = None, old_logprobs: Any = None, logprobs: Any = None
) -> Array:
    """Return where a token counts and no given log-prob is invalid, bool [B, T].

    Args: as for `statistics.columns`.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    Source: formulas, section 2.
    """
    return valid_tokens(
        check_inputs(rollout_logprobs=rollout_logprobs, old_logprobs=old_logprobs, logprobs=logprobs, mask=mask)
    )


def valid_tokens(inputs: CheckedInputs) -> Array:
    """Return the valid mask of checked arguments."""
    valid = inputs.mask
    for array in inputs.logprobs.values():
        # Half precision cannot represent the bounds.
        logp = array if array.itemsize >= 4 else inputs.functions.cast(array, "f4")
        valid = valid & is_sound(logp)
    return valid


def is_sound(logp: Array) -> Array:
    """Return where log-probs of at least single precision are within bounds; NaN compares false."""
    return (logp <= MAX_LOGPROB) & (logp > MIN_LOGPROB)
