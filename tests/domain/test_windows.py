"""What a run remembers of its gauges."""

from __future__ import annotations

import math

import pytest

from trmon.domain.windows import BASELINE_ROWS, WINDOW_ROWS, Baseline, Window


def filled(values: dict[int, float]) -> Window:
    """Return a window of values by step."""
    window = Window()
    for step, value in values.items():
        window = window.put(step, value)
    return window


@pytest.mark.parametrize(
    ("values", "step", "value", "expected"),
    [
        pytest.param({}, 3, 1.0, {3: 1.0}, id="the first value is kept"),
        pytest.param({1: 1.0, 2: 2.0}, 2, 5.0, {1: 1.0, 2: 5.0}, id="a later update of the step replaces it"),
        pytest.param({1: 1.0, 7: 2.0, 9: 3.0}, 5, 4.0, {1: 1.0, 5: 4.0}, id="a restart that goes back forgets"),
        pytest.param({1: 1.0}, 2, math.nan, {1: 1.0}, id="nan is not remembered"),
        pytest.param({1: 1.0}, 2, math.inf, {1: 1.0, 2: math.inf}, id="infinity is"),
    ],
)
def test_a_window_holds_one_value_a_step(
    values: dict[int, float], step: int, value: float, expected: dict[int, float]
) -> None:
    window = filled(values).put(step, value)
    assert dict(zip(window.steps, window.values, strict=True)) == expected


def test_a_window_forgets_what_is_oldest() -> None:
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
    assert filled(values).growth() == pytest.approx(growth, nan_ok=True)


def test_a_baseline_is_the_median_of_the_first_values_and_never_moves() -> None:
    baseline = Baseline().put(math.nan)
    for value in range(BASELINE_ROWS):
        assert math.isnan(baseline.value)
        baseline = baseline.put(float(value))
    assert baseline.value == (BASELINE_ROWS - 1) / 2
    assert baseline.put(1e9) == baseline
