"""Computes what tells corrupt log-probs of the sampler from honest ones: counts, their unit, their order."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import SequenceMatrix
from trmon_client.core.reduction.sequences import SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.token_terms import RATIOS, rollout_pair

_COUNTS = ("n_mu_zero", "n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail")


def rollout_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of mu against the trainer's policy; absent without either, or without their columns.

    Source: findings, section 2b.
    """
    pair = rollout_pair(sequences.columns.pairs)
    if pair is None:
        return {}
    sums = sequences.sums
    above, below = RATIOS[pair]
    found = {name: sums[name] for name in _COUNTS if name in sums}
    if SUM_SQ_LOGP[above] in sums and SUM_SQ_LOGP[below] in sums:
        found |= _unit(sums, pair)
    if SUM_LOGP[below] in sums:
        found["mu_logprob_mean"] = _quotient(sums[SUM_LOGP[below]], sums["n_tokens"])
    shift = float(np.add.reduce(np.abs(sequences.of_column(f"{pair}_sum_d"))))
    return found | {"seq_shift_share": _quotient(shift, sums[f"{pair}_sum_abs_d"])}


def _unit(sums: dict[str, float], pair: Pair) -> dict[str, float]:
    """Return the slope through 0 of log p on log q, and the share of the squares of d that it does not explain.

    The slope is log 2 if mu is given in log2, 1/log 2 if the trainer's log-probs are, and the rest is then small.
    """
    sq_p, sq_q = (sums[SUM_SQ_LOGP[name]] for name in RATIOS[pair])
    sq_d = sums[f"{pair}_sum_sq_d"]
    # log p = log q + d.
    dot = (sq_p - sq_q - sq_d) / 2
    explained = _quotient(dot * dot, sq_q * sq_d)
    return {"logp_unit": 1 + _quotient(dot, sq_q), "logp_unit_residual": max(1 - explained, 0.0)}


def _quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
