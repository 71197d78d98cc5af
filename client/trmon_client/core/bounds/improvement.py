"""Improvement: whether a batch supports that the step made the policy better, and if not, what is in the way."""

from __future__ import annotations

import math
from enum import Enum

from trmon_client.core.arrays.backend import Array, to_computable
from trmon_client.core.bounds.surrogate import surrogate
from trmon_client.core.bounds.surrogate_error import batch_bounds
from trmon_client.core.columns.columns import Columns

STANDARD_ERRORS = 2.0
"""How many standard errors are taken off the surrogate before it is compared with the bound."""


class Improvement(Enum):
    """What a batch says of improvement; never a guarantee: its maxima under-estimate those over all contexts."""

    SUPPORTED = "supported"
    KL_NOT_EXACT = "kl_not_exact"
    REJECTIONS = "rejections"
    SURROGATE_UNKNOWN = "surrogate_unknown"
    BOUND_UNKNOWN = "bound_unknown"
    WITHIN_ERROR = "within_error"

    @property
    def is_supported(self) -> bool:
        """Whether the surrogate exceeds all that can be held against it."""
        return self is Improvement.SUPPORTED


def improvement(columns: Columns, *, accepted: Array, centred: bool = False, reward_range: float = 1.0) -> Improvement:
    """Return whether L - 2 se(L) exceeds the adaptive bound, with exact KL and nothing rejected; else the reason.

    With a rejection the theorem speaks of the masked objective only, so that nothing is claimed.
    Args: accepted: [B] bool; centred: see `surrogate`; reward_range: > 0.
    Source: [TRM] section 3; formulas, section 7.
    """
    columns = columns.numpy()
    if columns.kl_is != "exact" or columns.kl_pair != columns.primary:
        return Improvement.KL_NOT_EXACT
    decided = (columns["n_tokens"] + columns["n_invalid"]) > 0
    if not to_computable(accepted, None)[decided].all():
        return Improvement.REJECTIONS
    promised = surrogate(columns, centred=centred)
    least = promised.value - STANDARD_ERRORS * promised.standard_error
    if math.isnan(least):
        return Improvement.SURROGATE_UNKNOWN
    bound = batch_bounds(columns, reward_range=reward_range).adaptive
    if math.isnan(bound):
        return Improvement.BOUND_UNKNOWN
    return Improvement.SUPPORTED if least > bound else Improvement.WITHIN_ERROR
