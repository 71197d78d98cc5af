"""The masked surrogate: the estimated gain in reward of an update, with its standard error, from the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.columns.columns import Columns


@dataclass(frozen=True, slots=True)
class Surrogate:
    """L in units of reward, its standard error, and the number of sequences in the mean."""

    value: float
    standard_error: float
    n_sequences: int


def surrogate(
    columns: Columns, *, accepted: Array | None = None, weights: Array | None = None, centred: bool = False
) -> Surrogate:
    """Return L = (1/N) sum_i M_i A_i (sum_t rho_t - T_i) on the primary pair, and its standard error.

    Its gradient is the gradient of [TRM] eq. 23, and it is 0 at pi = mu. N includes rejected sequences and excludes
    sequences without a counting token. Merge the columns of all ranks first.
    Args: accepted: [B] bool, M; None accepts all. weights: [B] in [0, 1], M of a soft policy, in place of accepted;
    they enter as constants. centred: the caller declares that A = R - b with R in [0, 1] and b a
    baseline, not divided by a standard deviation.
    Returns: nan if not centred, without advantages or a pair, or if the advantage of a sequence with M > 0 is nan; the
    standard error is also nan for fewer than two sequences. The standard error assumes independent sequences, which
    a baseline per group violates.
    Source: [TRM] eq. 23; formulas, section 6.
    """
    columns = columns.numpy()
    decided = (columns["n_tokens"] + columns["n_invalid"]) > 0
    n = int(decided.sum())
    if not centred or "advantage" not in columns or columns.primary is None or not n:
        return Surrogate(math.nan, math.nan, n)
    given = accepted if weights is None else weights
    factors = np.ones(columns.n_sequences, bool) if given is None else to_computable(given, None)
    with np.errstate(all="ignore"):
        gains = columns["advantage"] * columns[f"{columns.primary}_sum_ratio_dev"]
        terms = np.where(factors > 0, factors * gains, 0.0)[decided]
        deviation = float(terms.std()) if n > 1 else math.nan
        return Surrogate(float(terms.mean()), deviation / math.sqrt(n), n)
