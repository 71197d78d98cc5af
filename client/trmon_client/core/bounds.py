"""The error bounds of the surrogate objective, its gain on the kept sequences, and the thresholds that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trmon_client.core.arrays import Array, to_computable
from trmon_client.core.column_schema import GAPS, KlIs
from trmon_client.core.columns import Columns, SequenceMatrix


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
    # 0 x inf = inf, because an unbounded KL gives no bound.
    product = kl_max + kl_seq if math.isinf(kl_max) or math.isinf(kl_seq) else kl_max * kl_seq
    mixed = reward_range * 2 * horizon * math.sqrt(product)
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


def _check(*, horizon: int, **kls: float) -> None:
    if not horizon >= 1:
        raise ValueError(f"horizon must be 1 token or more, got {horizon}")
    for name, kl in kls.items():
        if kl < 0:
            raise ValueError(f"{name} must be 0 nats or more, got {kl}")


@dataclass(frozen=True, slots=True)
class AlphaSplit:
    """Lower bounds of the worst-case total variations of [3P]; nan where the pair is not given or no token is valid.

    `staleness` bounds alpha_0, between pi and pi_old; `mismatch` bounds alpha_1, between pi_old and mu: each the
    largest exact TV where the logits of all three policies are given, else the largest difference of probabilities.
    Both are nan where pi_old has other weights than mu, since then the mismatch pair holds staleness. The penalty
    grows with the sum of the alphas. Replaying a router's choices hides alpha and does not reduce it.
    """

    staleness: float
    mismatch: float
    is_exact: bool = False

    @classmethod
    def of_signals(cls, signals: Mapping[str, float]) -> AlphaSplit:
        """Return the split computed from the signals of a batch."""
        if signals.get("engine_lag", 0.0) > 0:
            return cls(math.nan, math.nan)
        is_exact = all(f"{gap}_exact_tv_max" in signals for gap in GAPS)
        stem = "exact_tv_max" if is_exact else "prob_diff_max"
        mismatch, staleness = (signals.get(f"{gap}_{stem}", math.nan) for gap in GAPS)
        return cls(staleness, mismatch, is_exact)

    @property
    def mismatch_share(self) -> float:
        """The share of mismatch in the sum of the bounds, in [0, 1]; nan if both are 0 or one is unknown."""
        total = self.staleness + self.mismatch
        return self.mismatch / total if total else math.nan


def engine_lag(columns: Columns) -> float:
    """Return the lag in weight versions between the two sides of the pair that rules read; 0 means equal weights.

    The two sides of the mismatch pair have equal weights by definition, unless the versions that the trainer states
    differ. Those of the total pair have if no version is stated: then engine drift and lag cannot be separated.
    Args: columns: numpy. Returns: versions; NaN if no pair compares the engines.
    Source: formulas, sections 1 and 9.
    """
    has_mismatch = "mismatch" in columns.pairs
    numerator = columns.old_version if has_mismatch and columns.old_version is not None else columns.trainer_version
    if numerator is None or "version_min" not in columns:
        return 0.0 if has_mismatch or "total" in columns.pairs else math.nan
    versions = columns["version_min"][(columns["n_tokens"] > 0) & (columns["version_min"] >= 0)]
    return float(np.max(numerator - versions)) if len(versions) else math.nan


def alpha_split(columns: Columns) -> AlphaSplit:
    """Return the largest TV seen for each gap, or difference of token probabilities; it is at most the worst-case TV.

    Source: [3P] theorem 2; formulas, section 7.
    """
    sequences = SequenceMatrix.of(columns.numpy())
    of = {f"{gap}_{stem}": name.format(gap) for gap in GAPS for stem, name in _LARGEST.items()}
    found = {signal: float(sequences.of_column(name).max()) for signal, name in of.items() if name in sequences.columns}
    return AlphaSplit.of_signals(found | {"engine_lag": engine_lag(sequences.columns)})


_LARGEST = {"prob_diff_max": "{}_max_prob_diff", "exact_tv_max": "max_tv_{}"}


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
