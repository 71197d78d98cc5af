"""Features of a signal's past, against their definitions row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.domain.diagnosis.runs import run
from trmon.domain.diagnosis.conditions import HistoryAllOf, HistoryAnyOf, HistoryCondition, HistoryLimit, HistoryNot
from trmon.domain.diagnosis.criteria import Thresholds, finding_conditions, nucleus_sampling, unhealthy
from trmon.domain.diagnosis.features import (
    REQUIRED_SIGNALS,
    recent_growth,
    relative_to_median,
    rolling_minimum,
    with_features,
)
from trmon.domain.diagnosis.history import Array, History

Feature = Callable[[Array], Array]


def median(values: Array) -> float:
    """A median that is no yardstick where it is 0."""
    return float(np.median(values)) or math.nan


def relative_at(values: Array, i: int) -> float:
    return float(values[i]) / median(values[max(0, i - 100) : i]) if i >= 20 else math.nan


def rise_at(values: Array, i: int) -> float:
    first = max(0, i - 54)
    return float(np.median(values[i - 4 : i + 1])) / median(values[first : first + 5]) if i >= 24 else math.nan


def least_at(values: Array, i: int) -> float:
    return float(values[i - 19 : i + 1].min()) if i >= 19 else math.nan


@pytest.mark.parametrize(
    ("feature", "expected"),
    [(relative_to_median, relative_at), (recent_growth, rise_at), (rolling_minimum, least_at)],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    ("n", "unknown", "zeros"),
    [
        pytest.param(1, 0.0, 0.0, id="one row"),
        pytest.param(20, 0.0, 0.0, id="one row too few for a baseline"),
        pytest.param(25, 0.0, 0.0, id="the first with a rise"),
        pytest.param(101, 0.0, 0.0, id="the baseline's window is full"),
        pytest.param(256, 0.4, 0.6, id="unknown rows, and medians of 0"),
    ],
)
def test_features_are_of_the_known_values_up_to_each(
    feature: Feature, expected: Callable[[Array, int], float], n: int, unknown: float, zeros: float
) -> None:
    random = np.random.default_rng(n)
    values = np.where(random.random(n) < zeros, 0.0, random.exponential(size=n))
    known = random.random(n) >= unknown
    column = np.where(known, values, math.nan)
    wanted = np.full(n, math.nan)
    wanted[known] = [expected(values[known], i) for i in range(int(known.sum()))]
    np.testing.assert_array_equal(feature(column), wanted)


@pytest.mark.parametrize("feature", [relative_to_median, recent_growth, rolling_minimum])
def test_a_signal_that_nobody_sent_has_no_features(feature: Feature) -> None:
    assert np.isnan(feature(np.full(30, math.nan))).all()


@pytest.mark.parametrize("feature", [relative_to_median, recent_growth])
def test_infinite_values_make_no_warning(feature: Feature) -> None:
    assert len(feature(np.full(60, math.inf))) == 60


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, 0.0])
def test_the_largest_numbers_and_none_make_no_warning(value: float) -> None:
    rows = 60
    names = ("grad_norm", "clip_fraction", "grad_variance", "saturated_fraction", "version_lag_max")
    of_pair = ("kl_k1", "kl_k2", "kl_k3", "ratio_mean", "is_weight_std", "band_fraction")
    given = {name: [value] * rows for name in (*names, "n_tokens", "staleness_kl_k3")}
    given |= {f"mismatch_{name}": [value] * rows for name in of_pair}
    found = with_features(History.of_rows(step=range(rows), update=[-1] * rows, values=given))
    assert len(found) == rows


def limits_in(condition: HistoryCondition) -> Iterator[HistoryLimit]:
    match condition:
        case HistoryLimit():
            yield condition
        case HistoryNot():
            yield from limits_in(condition.part)
        case HistoryAnyOf() | HistoryAllOf():
            for part in condition.parts:
                yield from limits_in(part)


def test_every_limit_reads_what_is_asked_for_or_is_made_of_it() -> None:
    limits = Thresholds()
    conditions = [*finding_conditions(limits).values(), nucleus_sampling(limits), unhealthy(limits)]
    names = {limit.signal for condition in conditions for limit in limits_in(condition)}
    assert len(names) > 15
    history = run(saturated_fraction=0.1, grad_variance=1.0)
    made = with_features(history).values.keys() - history.values.keys()
    stems = {name.removeprefix("mismatch_") for name in REQUIRED_SIGNALS}
    assert names - stems - made - {"staleness_kl_k3_early"} == set()
