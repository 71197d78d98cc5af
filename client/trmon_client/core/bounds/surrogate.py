"""The masked surrogate: what the trainer's step promises in reward, from the columns, and how surely."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array, to_computable
from trmon_client.core.columns.columns import Columns


@dataclass(frozen=True, slots=True)
class Surrogate:
    """L in units of reward, its standard error, and the number of sequences it is a mean of."""

    value: float
    standard_error: float
    n_sequences: int


def surrogate(columns: Columns, *, accepted: Array | None = None, centred: bool = False) -> Surrogate:
    """Return L = (1/N) sum_i M_i A_i (sum_t rho_t - T_i) on the primary pair, and its standard error.

    Its gradient is that of [TRM] eq. 23; it is 0 at pi = mu. N counts rejected sequences too, of all that `columns`
    hold: merge the ranks first. A sequence in which no token counts is none.
    Args: accepted: [B] bool, M; None: all. centred: the caller's word that A = R - b with R in [0, 1] and b a
    baseline, not divided by a standard deviation.
    Returns: nan unless centred, without advantages, where an accepted sequence's is nan, and for the standard error
    of fewer than two sequences. The error takes sequences to be independent, which a group's baseline bends.
    Source: [TRM] eq. 23; formulas, section 6.
    """
    columns = columns.numpy()
    rows = (columns["n_tokens"] + columns["n_invalid"]) > 0
    n = int(rows.sum())
    if not centred or "advantage" not in columns or not n:
        return Surrogate(math.nan, math.nan, n)
    mask = np.ones(columns.n_sequences, bool) if accepted is None else to_computable(accepted, None)
    with np.errstate(all="ignore"):
        gain = columns["advantage"] * columns[f"{columns.primary}_sum_ratio_dev"]
        terms = np.where(mask, gain, 0.0)[rows]
        spread = float(terms.std()) if n > 1 else math.nan
        return Surrogate(float(terms.mean()), spread / math.sqrt(n), n)
