"""Error bounds on the distance between the surrogate objective and the true objective, in units of reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import KlIs


@dataclass(frozen=True, slots=True)
class ErrorBounds:
    """Bounds on |surrogate - objective|; nan where a bound cannot be asserted.

    `adaptive` is the smaller of `pinsker_marginal` and `mixed`. `vacuous` states whether `adaptive` exceeds the range
    of rewards and therefore certifies nothing; None if unknown. Over a batch the bounds are estimates: the maxima
    underestimate the maxima over all contexts, and with masking they cover only the masked objective. `trpo` requires
    that mu can sample every token that pi can: it does not hold for top-p or top-k rollouts, the others do.
    """

    trpo: float
    pinsker_marginal: float
    mixed: float
    adaptive: float
    vacuous: bool | None


def error_bounds(
    *, horizon: int, kl_max: float, kl_seq: float, kl_is: KlIs = "exact", reward_range: float = 1.0
) -> ErrorBounds:
    """Return the bounds for responses of at most `horizon` tokens.

    Args: horizon: tokens, >= 1; kl_max: largest token KL, nats; kl_seq: mean KL of whole sequences, nats;
    kl_is: a lower bound of KL asserts only `vacuous`, a sampled KL asserts nothing; reward_range: > 0.
    Returns: nan where a KL is nan.
    Errors: ValueError if horizon, a KL or reward_range is out of range.
    Source: [TRM] section 3.
    """
    _check(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
    if not reward_range > 0:
        raise ValueError(f"reward_range must be above 0, got {reward_range}")
    trpo = 0.0 if horizon == 1 else reward_range * horizon * (horizon - 1) * kl_max
    pinsker_marginal = reward_range * 4 / 3 * horizon**1.5 * kl_max
    mixed = reward_range * 2 * horizon * math.sqrt(_product(kl_max, kl_seq))
    adaptive = math.nan if math.isnan(mixed) else min(pinsker_marginal, mixed)
    vacuous = adaptive > reward_range
    if kl_is == "exact":
        return ErrorBounds(trpo, pinsker_marginal, mixed, adaptive, None if math.isnan(adaptive) else vacuous)
    return replace(UNKNOWN, vacuous=True if vacuous and kl_is == "lower_bound" else None)


def batch_bounds(
    columns: Columns, *, accepted: Array | None = None, delta: float = math.inf, reward_range: float = 1.0
) -> ErrorBounds:
    """Return the bounds of a batch, over its sequences with tokens.

    If the reverse KL is available, the smaller of the two maxima is used.
    Args: accepted: [B] bool, to bound the masked objective over accepted sequences only; delta: the largest token
    KL that acceptance allows, nats; reward_range: > 0.
    Returns: `UNKNOWN` if a KL column is missing or no sequence with tokens is left.
    Source: [TRM] section 3 and remark B.5, formulas, section 7.
    """
    columns = columns.numpy()
    in_batch = columns["n_tokens"] > 0
    if accepted is not None:
        in_batch = in_batch & to_computable(accepted, None)
    if not {"max_kl", "sum_kl"} <= columns.keys() or not in_batch.any():
        return UNKNOWN
    # The minimum of the two maxima, not the maximum of the minima. NaN propagates.
    maxima = [columns[name][in_batch].max() for name in ("max_kl", "max_reverse_kl") if name in columns]
    return error_bounds(
        horizon=int(columns["n_tokens"][in_batch].max()),
        kl_max=float(np.min([delta, *maxima])),
        kl_seq=float(columns["sum_kl"][in_batch].mean()),
        kl_is=columns.kl_is,
        reward_range=reward_range,
    )


def max_delta(*, horizon: int, budget: float, kl_seq: float | None = None) -> float:
    """Return the largest bound on the token KL that keeps the adaptive error bound within a budget, in nats.

    Args: horizon: tokens, >= 1; budget: reward, for a reward range of 1; kl_seq: mean KL of whole sequences, nats.
    Returns: 0 if budget <= 0, inf if kl_seq is 0.
    Errors: ValueError if horizon or kl_seq is out of range or budget is nan.
    Source: formulas, section 7.
    """
    _check(horizon=horizon, kl_seq=0.0 if kl_seq is None else kl_seq)
    if math.isnan(budget):
        raise ValueError("budget must be a number, got nan")
    if budget <= 0:
        return 0.0
    by_horizon: float = 3 * budget / (4 * horizon**1.5)
    if kl_seq is None or math.isnan(kl_seq):
        return by_horizon
    return math.inf if kl_seq == 0 else max(by_horizon, (budget / (2 * horizon)) ** 2 / kl_seq)


UNKNOWN = ErrorBounds(math.nan, math.nan, math.nan, math.nan, vacuous=None)
"""The bounds of a batch about which nothing can be asserted."""


def _product(kl_max: float, kl_seq: float) -> float:
    """Return the product, with 0 x inf = inf because an unbounded KL gives no bound."""
    if math.isinf(kl_max) or math.isinf(kl_seq):
        return kl_max + kl_seq
    return kl_max * kl_seq


def _check(*, horizon: int, **kls: float) -> None:
    if not horizon >= 1:
        raise ValueError(f"horizon must be 1 token or more, got {horizon}")
    for name, kl in kls.items():
        if kl < 0:
            raise ValueError(f"{name} must be 0 nats or more, got {kl}")
