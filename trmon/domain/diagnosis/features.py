"""Features: series that a diagnosis computes from signals and their history."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trmon.domain.batches.batch import BatchRow
from trmon.domain.diagnosis.history import ENGINE_PAIRS, Array, History
from trmon.domain.signals.drift_features import HEAVY_TAIL_VARIANCE, K3_FACTOR, K3_FLOOR, STANDARD_ERRORS
from trmon.domain.signals.run_features import FEATURE_SIGNALS
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SignalSpec

BASELINE_ROWS = 100
MIN_BASELINE_ROWS = 20
RISE_ROWS = 50
MIN_RISE_ROWS = 20
MEDIAN_ROWS = 5
FLAT_ROWS = 20

SMALLEST_BATCH_TOKENS = 1000
"""The smallest number of tokens assumed for a batch of unknown size."""
LARGEST_LOG_RATIO = 20.0
"""The largest log-ratio of a token before it counts as clamped; the assumed spread of d if it is unknown."""


_RISE = "median of 5/median of 5, up to 50 steps apart"
FEATURES: dict[str, SignalSpec] = {
    name: SignalSpec.of(name, unit, f"{words[0].upper()}{words[1:]}", formula, words=words)
    for name, unit, words, formula in (
        ("saturated_outside_band", "ratio", "padded tokens with unlikely ratios", "band_fraction/saturated_fraction"),
        ("grad_norm_relative", "ratio", "gradient norm against its median", "grad_norm/median of 100 steps before"),
        ("clip_fraction_rise", "ratio", "clipped tokens against before", _RISE),
        ("grad_variance_rise", "ratio", "gradient variance against before", _RISE),
        ("zero_variance_groups_least", "fraction", "groups of equal rewards", "min of 20 zero_variance_groups"),
        ("staleness_growth", "ratio", "KL growth with the lag", "staleness_kl_k3 above the median lag/below it"),
        ("staleness_kl_k3_early", "nats", "KL per token after the first updates", "max over 8 updates of a rollout"),
    )
}
"""What a diagnosis computes besides the signals that a run stores. Source: formulas, section 9."""


@np.errstate(all="ignore")
def with_features(history: History) -> History:
    """Return the history with its features, NaN if the history is too short; unknown features are left out.

    A feature that the history already contains is kept.
    """
    named: dict[str, Array] = {
        "engine_lag": engine_lag_series(history),
        "k3_excess": k3_excess_series(history),
        "ratio_shift": ratio_shift_series(history),
        "saturated_outside_band": _share_outside_band(history),
        "grad_norm_relative": relative_to_median(_values(history, "grad_norm")),
        "clip_fraction_rise": recent_growth(_values(history, "clip_fraction")),
        "grad_variance_rise": recent_growth(_values(history, "grad_variance")),
        "zero_variance_groups_least": rolling_minimum(_values(history, "zero_variance_groups")),
    }
    history = _with(history, named)
    lag = staleness_lag_series(history)
    return _with(history, {"staleness_lag": lag, "staleness_growth": growth_with_lag(history, lag)})


def engine_lag_series(history: History) -> Array:
    """Return the lag in versions between the two sides of the pair that compares the engines.

    Without old_version, pi_old is assumed to be scored with the current weights; without any version, the lag is
    assumed to be 0 if a pair compares the engines.
    """
    version_lag = _values(history, "version_lag_max")
    has_engines = any(name.startswith(("mismatch_", "total_")) for name in history.values)
    return np.where(np.isnan(version_lag), 0.0 if has_engines else math.nan, version_lag)


def staleness_lag_series(history: History) -> Array:
    """Return the lag in versions between pi and pi_old; 0 if the trainer states none."""
    lag = _values(history, "version_lag_max") - _values(history, "engine_lag")
    return np.where(np.isnan(lag), 0.0, lag)


def growth_with_lag(history: History, lag: Array) -> Array:
    """Return the staleness (k3) of the rows above the median lag over that of the other rows, for the rows so far.

    Returns: a ratio; +inf if the lag never changed, since without lag the staleness would be 0.
    """
    k3 = _values(history, "staleness_kl_k3")
    out = np.full(len(history), math.nan)
    for i in range(len(history)):
        known = ~np.isnan(k3[: i + 1])
        if known.any():
            out[i] = _split_ratio(k3[: i + 1][known], lag[: i + 1][known])
    return out


def k3_excess_series(history: History) -> Array:
    """Return kl_k3 over the largest value that valid log-probs can show, if that is certain; else NaN.

    Without `n_tokens` a batch is assumed to have at least 1,000 tokens, without kl_k2 the spread of d to be at most 20:
    values that exceed even this limit are corrupt, and values within 10 |kl_k1| are valid in any case.
    Source: formulas, section 9, A'.
    """
    k1, k3, n = (_engine_values(history, name) for name in ("kl_k1", "kl_k3", "n_tokens"))
    spread = np.sqrt(_variance(history))
    certain = ~np.isnan(n) & ~np.isnan(spread)
    spread = np.where(np.isnan(spread), LARGEST_LOG_RATIO, spread)
    errors = STANDARD_ERRORS * spread / np.sqrt(np.where(np.isnan(n), SMALLEST_BATCH_TOKENS, n))
    smallest = k3 / (K3_FACTOR * np.maximum(np.maximum(np.abs(k1), errors), K3_FLOOR))
    largest = k3 / (K3_FACTOR * np.maximum(np.abs(k1), K3_FLOOR))
    return np.where(certain | (smallest > 1), smallest, np.where(largest <= 1, largest, math.nan))


def ratio_shift_series(history: History) -> Array:
    """Return how many standard errors ratio_mean is above 1; NaN without `n_tokens` and is_weight_std.

    It is NaN too if d varies so much that the spread of a sample does not bound the error of its mean.
    """
    mean, spread, n = (_engine_values(history, name) for name in ("ratio_mean", "is_weight_std", "n_tokens"))
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = (mean - 1) / (spread / np.sqrt(n))
    return np.where(_variance(history) > HEAVY_TAIL_VARIANCE, math.nan, shift)


def relative_to_median(column: Array) -> Array:
    """Return values over the median of up to 100 previous values; NaN with fewer than 20."""

    def ratios(values: Array) -> Array:
        at = np.arange(len(values))
        past = np.sort(_newest(np.append(math.nan, values[:-1]), BASELINE_ROWS), axis=1)
        available = np.minimum(at, BASELINE_ROWS)
        median = (past[at, np.maximum(available - 1, 0) // 2] + past[at, available // 2]) / 2
        return np.where(at < MIN_BASELINE_ROWS, math.nan, values / _nonzero(median))

    return _over_known(column, ratios)


def recent_growth(column: Array) -> Array:
    """Return the median of the newest 5 values over that of 5 up to 50 rows earlier; NaN with fewer than 25."""

    def ratios(values: Array) -> Array:
        at = np.arange(len(values))
        medians = np.median(_newest(values, MEDIAN_ROWS), axis=1)
        earlier = np.maximum(at - RISE_ROWS, MEDIAN_ROWS - 1)
        ratio = medians / _nonzero(medians[np.minimum(earlier, at)])
        return np.where(at < MIN_RISE_ROWS + MEDIAN_ROWS - 1, math.nan, ratio)

    return _over_known(column, ratios)


def rolling_minimum(column: Array) -> Array:
    """Return the smallest of the newest 20 values; NaN with fewer."""
    return _over_known(column, lambda values: _newest(values, FLAT_ROWS).min(axis=1))


def _over_known(column: Array, feature: Callable[[Array], Array]) -> Array:
    """Return a feature of the known values, at their positions."""
    out, known = np.full(len(column), math.nan), ~np.isnan(column)
    if known.any():
        with np.errstate(all="ignore"):
            out[known] = feature(column[known])
    return out


def _newest(values: Array, n: int) -> Array:
    """Return the newest n values up to each value, [len(values), n], NaN before the first."""
    return np.lib.stride_tricks.sliding_window_view(np.append(np.full(n - 1, math.nan), values), n)


def _nonzero(medians: Array) -> Array:
    """Return medians as divisors, NaN for 0."""
    return np.where(medians == 0, math.nan, medians)


def _split_ratio(values: Array, lag: Array) -> float:
    above = lag > np.median(lag)
    if not above.any():
        above = lag == lag.max()
    if above.all():
        return math.inf
    low = float(np.median(values[~above]))
    return float(np.median(values[above])) / low if low > 0 else math.inf


def _with(history: History, features: dict[str, Array]) -> History:
    made = {
        name: column
        for name, column in features.items()
        if not np.isnan(column).all() and np.isnan(_values(history, name)).all()
    }
    return History(history.steps, {**history.values, **made})


def _variance(history: History) -> Array:
    """Return the variance of d; NaN if kl_k1 or kl_k2 is."""
    k1, k2 = _engine_values(history, "kl_k1"), _engine_values(history, "kl_k2")
    with np.errstate(invalid="ignore"):
        return np.maximum(2 * k2 - k1 * k1, 0.0)


def _share_outside_band(history: History) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _engine_values(history, "band_fraction") / _values(history, "saturated_fraction")


def _engine_values(history: History, signal: str) -> Array:
    return history.find(signal, pairs=ENGINE_PAIRS)[1]


def _values(history: History, signal: str) -> Array:
    return history.find(signal)[1]


PAIR_SIGNALS = (
    *("prob_pearson", "prob_diff_max", "ppl_ratio", "ppl_shift", "kl_k1", "kl_k2", "kl_k3", "k3_excess"),
    *("ratio_mean", "ratio_shift", "is_weight_std", "chi2_token", "ess_token", "tv", "band_fraction"),
    *("ln_e_value", "temperature_near", "temperature_far"),
)
"""Signals of a pair, by stem."""
BATCH_SIGNALS = (
    *("saturated_fraction", "invalid_fraction", "engine_lag", "version_lag_max", "n_tokens"),
    *("staleness_kl_k3", "staleness_chi2_token", "clip_fraction", "zero_variance_groups"),
    *("ess_seq_relative", "response_length_growth", "mask_rate:geo_mask", "mu_zero_saturated_share", "router_replay"),
    *("version_span_max", "all_solved_groups", "none_solved_groups", *FEATURE_SIGNALS),
)
TRAINER_SIGNALS = ("grad_norm", "grad_variance", "router_flip_rate")
"""Trainer scalars."""

REQUIRED_SIGNALS: tuple[str, ...] = tuple(
    dict.fromkeys((*(f"{pair}_{stem}" for pair in PAIRS for stem in PAIR_SIGNALS), *BATCH_SIGNALS, *TRAINER_SIGNALS))
)
"""All names that a diagnosis reads; features of the history, such as clip_fraction_rise, are computed from them."""


def history_of_batches(rows: Sequence[BatchRow]) -> History:
    """Return the history of one or more rows, in the run's order."""
    numbers = [{**row.scalars, **row.signals} for row in rows]
    names = [name for name in REQUIRED_SIGNALS if any(name in row for row in numbers)]
    return History.of_rows(
        step=[row.key.step for row in rows],
        update=[-1 if row.key.update is None else row.key.update for row in rows],
        values={name: [row.get(name, math.nan) for row in numbers] for name in names},
    )
