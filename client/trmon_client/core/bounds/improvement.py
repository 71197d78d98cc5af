"""Improvement: whether a batch supports that the update improved the policy, and the reason if it does not."""

from __future__ import annotations

import math
from enum import Enum

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.bounds.surrogate import surrogate
from trmon_client.core.bounds.surrogate_error import batch_bounds
from trmon_client.core.columns.columns import Columns

STANDARD_ERRORS = 2.0
"""The number of standard errors subtracted from the surrogate before the comparison with the bound."""


class Improvement(Enum):
    """The evidence of a batch, never a guarantee: its maxima underestimate the maxima over all contexts."""

    SUPPORTED = "supported"
    KL_NOT_EXACT = "kl_not_exact"
    REJECTIONS = "rejections"
    SURROGATE_UNKNOWN = "surrogate_unknown"
    BOUND_UNKNOWN = "bound_unknown"
    WITHIN_ERROR = "within_error"

    @property
    def is_supported(self) -> bool:
        """Whether the surrogate exceeds the error bound."""
        return self is Improvement.SUPPORTED


def improvement(columns: Columns, *, accepted: Array, centred: bool = False, reward_range: float = 1.0) -> Improvement:
    """Return SUPPORTED if L - 2 se(L) exceeds the adaptive bound, else the first reason against it.

    The KL must be exact. No sequence may be rejected, because with masking the theorem covers only the masked
    objective.
    Args: accepted: [B] bool; centred: see `surrogate`; reward_range: > 0.
    Source: [TRM] section 3; formulas, section 7.
    """
    columns = columns.numpy()
    if columns.kl_is != "exact" or columns.kl_pair != columns.primary:
        return Improvement.KL_NOT_EXACT
    decided = (columns["n_tokens"] + columns["n_invalid"]) > 0
    if not to_computable(accepted, None)[decided].all():
        return Improvement.REJECTIONS
    estimate = surrogate(columns, centred=centred)
    lower_confidence = estimate.value - STANDARD_ERRORS * estimate.standard_error
    if math.isnan(lower_confidence):
        return Improvement.SURROGATE_UNKNOWN
    bound = batch_bounds(columns, reward_range=reward_range).adaptive
    if math.isnan(bound):
        return Improvement.BOUND_UNKNOWN
    return Improvement.SUPPORTED if lower_confidence > bound else Improvement.WITHIN_ERROR
