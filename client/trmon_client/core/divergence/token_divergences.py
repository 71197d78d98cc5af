"""Reduces the divergences of tokens to the divergence columns of sequences."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of, is_tensor
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, KlIs, Pair, Reduction

REDUCTIONS: dict[str, tuple[str, ...]] = {
    "kl": ("max", "sum", "argmax"),
    "reverse_kl": ("max", "sum"),
    "tv": ("max", "sum"),
    "entropy_rollout": ("sum",),
    "entropy": ("sum",),
    "pi_squared": ("sum",),
}
"""The reductions of each quantity; a column is named `<reduction>_<quantity>`."""


def quantities_of(*, tv: bool, pi_squared: bool) -> tuple[str, ...]:
    """Return the quantities to compute, in the order of `REDUCTIONS`."""
    on_request = {"tv": tv, "pi_squared": pi_squared}
    return tuple(quantity for quantity in REDUCTIONS if on_request.get(quantity, True))


def reduce_divergences(by_quantity: dict[str, Array], *, mask: Array, kl_is: KlIs, kl_pair: Pair) -> Columns:
    """Return the divergence columns, and `n_tokens`, the number of tokens in the mask.

    Args: by_quantity: float64 [B, T] by the names of `REDUCTIONS`, at least KL; mask: bool [B, T].
    Returns: columns in the order of the schema; NaN at a counting token propagates to its sequence.
    Source: formulas, section 4.
    """
    if not mask.shape[1]:
        # Reductions require a position, so add one that does not count.
        mask = _with_one_position(mask)
        by_quantity = {quantity: _with_one_position(array) for quantity, array in by_quantity.items()}
    xp = functions_of(mask)
    found = {"n_tokens": xp.sum(mask, -1), "n_unbounded": xp.sum(mask & (by_quantity["kl"] == np.inf), -1)}
    for quantity, array in by_quantity.items():
        for reduction in REDUCTIONS[quantity]:
            found[f"{reduction}_{quantity}"] = _reduce(array, mask=mask, name=f"{reduction}_{quantity}")
    with np.errstate(all="ignore"):
        by_name = {name: xp.cast(found[name], spec.dtype) for name, spec in COLUMNS.items() if name in found}
    return Columns(by_name, kl_is=kl_is, kl_pair=kl_pair)


def _reduce(array: Array, *, mask: Array, name: str) -> Array:
    xp = functions_of(mask)
    spec = COLUMNS[name]
    if spec.reduction is Reduction.SUM:
        return xp.sum(xp.where(mask, array, 0.0), -1)
    counting = xp.where(mask, array, -np.inf)
    if spec.reduction is Reduction.MAX:
        return xp.max(counting, -1)
    return xp.where(xp.sum(mask, -1) > 0, xp.argmax(counting, -1), int(spec.identity))


def _with_one_position(array: Array) -> Array:
    shape = (array.shape[0], 1)
    return array.new_zeros(shape) if is_tensor(array) else np.zeros(shape, array.dtype)
