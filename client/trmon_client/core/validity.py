"""Which tokens are valid: those that the statistics, and so the divergences beside them, are made of."""

from __future__ import annotations

from typing import Any

from trmon_client.core.arrays import Array
from trmon_client.core.inputs import POLICIES, checked
from trmon_client.core.tokens import MAX_LOGPROB, MIN_LOGPROB


def valid_mask(
    *, mask: Any = None, rollout_logprobs: Any = None, old_logprobs: Any = None, logprobs: Any = None
) -> Array:
    """Return where a token counts and no given log-prob is invalid, bool [B, T].

    Args: as `statistics.columns` takes them.
    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    Source: formulas, section 2.
    """
    given = dict(zip(POLICIES, (rollout_logprobs, old_logprobs, logprobs), strict=True))
    inputs = checked(given, mask=mask)
    valid = inputs.mask
    for array in inputs.logprobs.values():
        logp = inputs.functions.cast(array, "f8")
        valid = valid & (logp <= MAX_LOGPROB) & (logp > MIN_LOGPROB)
    return valid
