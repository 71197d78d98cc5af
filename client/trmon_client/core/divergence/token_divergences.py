"""What was found at every token, reduced to the divergence columns of its sequence."""

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
}
"""The columns of every quantity are named `<reduction>_<quantity>`."""


def reduce_divergences(by_quantity: dict[str, Array], *, mask: Array, kl_is: KlIs, kl_pair: Pair) -> Columns:
    """Return the columns of what was found, with `n_tokens`, the tokens that were counted.

    Args: by_quantity: float64 [B, T] by the names of `REDUCTIONS`, KL at least; mask: bool [B, T].
    Returns: columns in the order of the schema; NaN at a token that counts stays NaN in its sequence.
    Source: formulas, section 4.
    """
    if not mask.shape[1]:
        # Reductions need a position: one that does not count.
        mask = _widened(mask)
        by_quantity = {quantity: _widened(array) for quantity, array in by_quantity.items()}
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
    reached = xp.where(mask, array, -np.inf)
    if spec.reduction is Reduction.MAX:
        return xp.max(reached, -1)
    return xp.where(xp.sum(mask, -1) > 0, xp.argmax(reached, -1), int(spec.identity))


def _widened(array: Array) -> Array:
    shape = (array.shape[0], 1)
    return array.new_zeros(shape) if is_tensor(array) else np.zeros(shape, array.dtype)
