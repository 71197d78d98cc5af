"""The minorizer: the gain of the surrogate that its error bound leaves, on the sequences that stay in the loss."""

from __future__ import annotations

from dataclasses import dataclass

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.bounds.surrogate import surrogate
from trmon_client.core.bounds.surrogate_error import batch_bounds
from trmon_client.core.columns.columns import Columns


@dataclass(frozen=True, slots=True)
class Minorizer:
    """L - adaptive in units of reward, nan unless the KL is exact; `vacuous` is that of the bound, None if unknown.

    Over a batch it is an estimate, never a guarantee: L is a mean and the bound's maxima underestimate those over all
    contexts; with rejected or weighted sequences it is about the masked objective only.
    """

    value: float
    vacuous: bool | None


def minorizer(
    columns: Columns,
    *,
    accepted: Array | None = None,
    weights: Array | None = None,
    centred: bool = False,
    reward_range: float = 1.0,
) -> Minorizer:
    """Return L - adaptive over the sequences in the loss, both on the pair of the KL.

    With the whole distribution in place of a batch, J(pi) - J(mu) is at least this. With weights M, J is the mean of
    M (R - b), whose range is no wider than that of R: the bound needs every sequence with M > 0, and only those.
    Args: accepted: [B] bool, None accepts all; weights: [B] in [0, 1], M of a soft policy, in place of accepted;
    centred: see `surrogate`; reward_range: > 0.
    Returns: nan where L or the bound is, and if the KL is not of the primary pair.
    Errors: ValueError if a KL is below 0 or reward_range is not above 0.
    Source: [TRM] section 3; formulas, sections 6 and 7.
    """
    in_loss = accepted if weights is None else to_computable(weights, None) > 0
    bounds = batch_bounds(columns, accepted=in_loss, reward_range=reward_range)
    if columns.kl_pair != columns.primary:
        return Minorizer(float("nan"), None)
    gain = surrogate(columns, accepted=accepted, weights=weights, centred=centred).value
    return Minorizer(gain - bounds.adaptive, bounds.vacuous)
