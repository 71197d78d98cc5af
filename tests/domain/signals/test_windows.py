"""The remembered history of signals: windows and baselines."""

from __future__ import annotations

import math

import pytest

from trmon.domain.signals.windows import BASELINE_ROWS, WINDOW_ROWS, Baseline, SignalWindow


def filled(values: dict[int, float]) -> SignalWindow:
    window = SignalWindow()
    for step, value in values.items():
        window = window.with_value(step, value)
    return window


@pytest.mark.parametrize(
    ("values", "step", "value", "expected"),
    [
        pytest.param({}, 3, 1.0, {3: 1.0}, id="the first value is kept"),
        pytest.param({1: 1.0, 2: 2.0}, 2, 5.0, {1: 1.0, 2: 5.0}, id="a later update of the step replaces it"),
        pytest.param({1: 1.0, 7: 2.0, 9: 3.0}, 5, 4.0, {1: 1.0, 5: 4.0}, id="a restart that goes back forgets"),
        pytest.param({1: 1.0}, 2, math.nan, {1: 1.0}, id="nan is ignored"),
        pytest.param({1: 1.0}, 2, math.inf, {1: 1.0, 2: math.inf}, id="infinity is kept"),
    ],
)
def test_a_window_holds_one_value_a_step(
    values: dict[int, float], step: int, value: float, expected: dict[int, float]
) -> None:
    window = filled(values).with_value(step, value)
    assert dict(zip(window.steps, window.values, strict=True)) == expected


def test_a_window_drops_the_oldest_values() -> None:
    window = filled({step: float(step) for step in range(2 * WINDOW_ROWS)})
    assert window.steps == tuple(range(WINDOW_ROWS, 2 * WINDOW_ROWS))


@pytest.mark.parametrize(
    ("values", "growth"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param(dict.fromkeys(range(102), 10.0), math.nan, id="too few values around 100 steps earlier"),
        pytest.param(dict.fromkeys(range(120), 10.0), 1.0, id="steady"),
        pytest.param({step: 10.0 if step < 60 else 13.0 for step in range(120)}, 1.3, id="grown by three tenths"),
        pytest.param({step: 10.0 if step < 110 else 15.0 for step in range(0, 160, 10)}, 1.5, id="every tenth step"),
        pytest.param(dict.fromkeys(range(120), 0.0), math.nan, id="an earlier median of zero"),
        pytest.param({step: 90.0 if step == 119 else 10.0 for step in range(120)}, 1.0, id="one outlier is no growth"),
    ],
)
def test_growth_is_against_five_values_around_a_hundred_steps_earlier(values: dict[int, float], growth: float) -> None:
    assert filled(values).growth(over_steps=100) == pytest.approx(growth, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 9.0}, math.nan, id="too few values before"),
        pytest.param({**dict.fromkeys(range(9), 2.0), 9: 30.0}, 15.0, id="over the median of those before"),
        pytest.param(
            {**dict.fromkeys(range(90), 1.0), **dict.fromkeys(range(90, 100), 3.0)}, 1.0, id="of the span only"
        ),
        pytest.param({**dict.fromkeys(range(9), 0.0), 9: 3.0}, math.nan, id="a median of zero"),
    ],
)
def test_relative_is_against_the_rolling_median(values: dict[int, float], expected: float) -> None:
    assert filled(values).relative(over_steps=9) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param({step: 2.0 * step for step in range(10)}, math.nan, id="a window shorter than the span"),
        pytest.param({step: 7.0 + 2.0 * step for step in range(11)}, 2.0, id="a line"),
        pytest.param({step: 0.5 * step for step in range(0, 40, 2)}, 0.5, id="a line of every other step"),
        pytest.param({0: 0.0, 10: 5.0}, math.nan, id="too few values in the span"),
        pytest.param({step: math.inf if step == 9 else 0.0 for step in range(11)}, math.nan, id="an infinite value"),
        pytest.param(dict.fromkeys(range(40), 3.0), 0.0, id="flat"),
    ],
)
def test_slope_is_of_least_squares_over_the_span(values: dict[int, float], expected: float) -> None:
    assert filled(values).slope(over_steps=10) == pytest.approx(expected, nan_ok=True)


def baseline(values: list[float]) -> Baseline:
    made = Baseline()
    for step, value in enumerate(values):
        made = made.with_value(step, value)
    return made


def test_a_baseline_is_the_median_of_the_first_steps_and_never_moves() -> None:
    first = [float(value) for value in range(BASELINE_ROWS)]
    assert all(math.isnan(baseline(first[:n]).value) for n in range(BASELINE_ROWS))
    assert baseline(first).value == (BASELINE_ROWS - 1) / 2
    assert baseline(first).with_value(99, 1e9) == baseline(first)
    assert Baseline().with_value(0, math.nan) == Baseline()


def test_the_last_update_of_a_step_is_the_one_in_the_baseline() -> None:
    assert Baseline().with_value(0, 1.0).with_value(0, 2.0).with_value(1, 3.0) == Baseline(
        steps=(0, 1), values=(2.0, 3.0)
    )
    full = baseline([0.0] * BASELINE_ROWS)
    assert full.with_value(BASELINE_ROWS - 1, 5.0).values[-1] == 5.0


@pytest.mark.parametrize(
    ("first", "value", "expected"),
    [
        pytest.param([float(i) for i in range(20)], 9.5, 0.0, id="at the median"),
        pytest.param([float(i) for i in range(20)], 9.5 + 1.4826 * 5.0 * 4, 4.0, id="four robust deviations above"),
        pytest.param([float(i) for i in range(19)] + [1e9], 9.5 - 1.4826 * 5.0, -1.0, id="an outlier moves nothing"),
        pytest.param([float(i) for i in range(19)], 50.0, math.nan, id="too short a history"),
        pytest.param([3.0] * 20, 50.0, math.nan, id="a history without spread"),
        pytest.param([math.inf] * 20, 50.0, math.nan, id="an infinite history"),
        pytest.param([float(i) for i in range(20)], math.nan, math.nan, id="nan"),
    ],
)
def test_a_zscore_is_by_median_and_absolute_deviations(first: list[float], value: float, expected: float) -> None:
    assert baseline(first).zscore(value) == pytest.approx(expected, nan_ok=True)
