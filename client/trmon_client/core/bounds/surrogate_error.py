"""Error bounds: how far the surrogate a trainer maximises can be from the true objective, in units of reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trmon_client.core.arrays.backend import Array, to_computable
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import KlIs


@dataclass(frozen=True, slots=True)
class ErrorBounds:
    """Bounds on |surrogate - objective|, nan where they cannot be asserted.

    `adaptive` is the tighter of pinsker_marginal and mixed; `vacuous`: it exceeds the whole range of rewards and so
    certifies nothing, None where that is unknown. An estimate over a batch: its maxima under-estimate those over
    all contexts, and with masking it speaks of the masked objective only. `trpo` needs a mu that can sample whatever
    pi can: under top-p or top-k rollouts the others hold, and it does not.
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
    kl_is: under lower bounds of KL only `vacuous` can be asserted, under samples nothing; reward_range: > 0.
    Returns: nan for a kl that is nan.
    Errors: ValueError for a horizon, a kl or a range out of bounds.
    Source: [TRM] section 3.
    """
    _check(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
    if not reward_range > 0:
        raise ValueError(f"reward_range must be above 0, and is {reward_range}")
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
    """Return the bounds over the sequences of a batch that have tokens.

    Where the reverse KL is at hand too, the smaller of the two maxima bounds as well.
    Args: accepted: [B] bool, to bound the masked objective over accepted sequences only; delta: the largest token
    KL that acceptance let through, nats; reward_range: > 0.
    Returns: `UNKNOWN` without both KL columns or without a sequence to speak of.
    Source: [TRM] section 3 and remark B.5, formulas, section 7.
    """
    columns = columns.numpy()
    rows = columns["n_tokens"] > 0
    if accepted is not None:
        rows = rows & to_computable(accepted, None)
    if not {"max_kl", "sum_kl"} <= columns.keys() or not rows.any():
        return UNKNOWN
    # The smaller of two maxima, never the maximum of the smaller ones. NaN stays NaN.
    maxima = [columns[name][rows].max() for name in ("max_kl", "max_reverse_kl") if name in columns]
    return error_bounds(
        horizon=int(columns["n_tokens"][rows].max()),
        kl_max=float(np.min([delta, *maxima])),
        kl_seq=float(columns["sum_kl"][rows].mean()),
        kl_is=columns.kl_is,
        reward_range=reward_range,
    )


def max_delta(*, horizon: int, budget: float, kl_seq: float | None = None) -> float:
    """Return the largest bound on token KL that keeps the adaptive error bound within a budget, in nats.

    Args: horizon: tokens, >= 1; budget: reward, of a range of 1; kl_seq: mean KL of whole sequences, nats.
    Returns: 0 for a budget of 0 or less, inf for a kl_seq of 0.
    Errors: ValueError for a horizon or a kl_seq out of bounds, or a budget that is nan.
    Source: formulas, section 7.
    """
    _check(horizon=horizon, kl_seq=0.0 if kl_seq is None else kl_seq)
    if math.isnan(budget):
        raise ValueError("budget must be a number, and is nan")
    if budget <= 0:
        return 0.0
    by_horizon: float = 3 * budget / (4 * horizon**1.5)
    if kl_seq is None or math.isnan(kl_seq):
        return by_horizon
    return math.inf if kl_seq == 0 else max(by_horizon, (budget / (2 * horizon)) ** 2 / kl_seq)


UNKNOWN = ErrorBounds(math.nan, math.nan, math.nan, math.nan, vacuous=None)
"""Nothing can be asserted."""


def _product(kl_max: float, kl_seq: float) -> float:
    """0 x inf is inf: an unbounded KL bounds nothing."""
    if math.isinf(kl_max) or math.isinf(kl_seq):
        return kl_max + kl_seq
    return kl_max * kl_seq


def _check(*, horizon: int, **kls: float) -> None:
    if not horizon >= 1:
        raise ValueError(f"horizon must be 1 token or more, and is {horizon}")
    for name, kl in kls.items():
        if kl < 0:
            raise ValueError(f"{name} must be 0 nats or more, and is {kl}")
