"""The measures of signals that comparisons use."""

from __future__ import annotations

import math

import pytest

from trmon.domain.rules.condition import NEWEST, Growth, Measure, RatioOfSignals, RelativeToMedian, Slope, ZScore
from trmon.domain.rules.signal_reader import SignalMemory, SignalReader


def reader(values: list[float], **others: float) -> SignalReader:
    """Return a reader of the last of these values of x, one per step, that remembers all earlier ones."""
    memory = SignalMemory()
    for step, value in enumerate(values):
        row = SignalReader({"total_x": value, **others}, "total", memory)
        memory = memory.updated(row, step=step, windows=("x",), baselines=("x",))
    return SignalReader({"total_x": values[-1], **others}, "total", memory)


LINE = [1.0 + step for step in range(20)]


@pytest.mark.parametrize(
    ("measure", "given", "expected"),
    [
        pytest.param(NEWEST, reader(LINE), 20.0, id="the newest value"),
        pytest.param(RatioOfSignals("y"), reader(LINE, y=5.0), 4.0, id="over another signal"),
        pytest.param(RatioOfSignals("y"), reader(LINE, y=0.0), math.inf, id="over zero"),
        pytest.param(RatioOfSignals("y"), reader([-1.0], y=0.0), -math.inf, id="a negative one over zero"),
        pytest.param(RatioOfSignals("y"), reader([0.0], y=0.0), math.nan, id="zero over zero"),
        pytest.param(RatioOfSignals("y"), reader(LINE), math.nan, id="over one that is missing"),
        pytest.param(Growth(10), reader(LINE), 18.0 / 10.0, id="growth: medians of five"),
        pytest.param(Growth(100), reader(LINE), math.nan, id="growth: too short a history"),
        pytest.param(RelativeToMedian(5), reader(LINE), 20.0 / 17.0, id="over the rolling median of the steps before"),
        pytest.param(Slope(10), reader(LINE), 1.0, id="slope"),
        pytest.param(ZScore(), reader([*LINE, 10.5 + 1.4826 * 5.0]), 1.0, id="z-score"),
        pytest.param(ZScore(), reader(LINE[:5]), math.nan, id="z-score: too short a history"),
        *(
            pytest.param(measure, reader([*LINE, math.nan]), math.nan, id=f"nan now: {measure}")
            for measure in (NEWEST, RatioOfSignals("x"), Growth(10), RelativeToMedian(5), Slope(10), ZScore())
        ),
    ],
)
def test_a_measure_is_a_number_or_nan(measure: Measure, given: SignalReader, expected: float) -> None:
    assert measure.value("x", given) == pytest.approx(expected, nan_ok=True)


def test_every_measure_has_a_label() -> None:
    measures = (NEWEST, RatioOfSignals("y"), Growth(10), RelativeToMedian(5), Slope(10), ZScore())
    assert [measure.label("x") for measure in measures] == [
        "x",
        "x/y",
        "growth of x over 10 steps",
        "x over its median of 5 steps",
        "slope of x over 10 steps",
        "z-score of x",
    ]


def test_the_history_of_a_signal_that_no_rule_needs_is_dropped() -> None:
    given = reader(LINE)
    after = given.memory.updated(given, step=20, windows=(), baselines=("x",))
    assert (after.windows, set(after.baselines)) == ({}, {"x"})
