"""What a comparison takes of a signal."""

from __future__ import annotations

import math

import pytest

from trmon.domain.rules.measures import NEWEST, Growth, Measure, RatioOfSignals, RelativeToMedian, Slope, ZScore
from trmon.domain.rules.signal_reader import SignalMemory, SignalReader


def readout(values: list[float], **others: float) -> SignalReader:
    """Return the readout of the last of these values of x, one a step, the past remembered as it came."""
    memory = SignalMemory()
    for step, value in enumerate(values):
        now = SignalReader({"total_x": value, **others}, "total", memory)
        memory = memory.after(now, step=step, windows=("x",), baselines=("x",))
    return SignalReader({"total_x": values[-1], **others}, "total", memory)


LINE = [1.0 + step for step in range(20)]


@pytest.mark.parametrize(
    ("measure", "given", "expected"),
    [
        pytest.param(NEWEST, readout(LINE), 20.0, id="the newest value"),
        pytest.param(RatioOfSignals("y"), readout(LINE, y=5.0), 4.0, id="over another signal"),
        pytest.param(RatioOfSignals("y"), readout(LINE, y=0.0), math.inf, id="over zero"),
        pytest.param(RatioOfSignals("y"), readout([-1.0], y=0.0), -math.inf, id="a negative one over zero"),
        pytest.param(RatioOfSignals("y"), readout([0.0], y=0.0), math.nan, id="zero over zero"),
        pytest.param(RatioOfSignals("y"), readout(LINE), math.nan, id="over one that is missing"),
        pytest.param(Growth(10), readout(LINE), 18.0 / 10.0, id="growth: medians of five"),
        pytest.param(Growth(100), readout(LINE), math.nan, id="growth: too short a past"),
        pytest.param(RelativeToMedian(5), readout(LINE), 20.0 / 17.0, id="over the rolling median of the steps before"),
        pytest.param(Slope(10), readout(LINE), 1.0, id="slope"),
        pytest.param(ZScore(), readout([*LINE, 10.5 + 1.4826 * 5.0]), 1.0, id="z-score"),
        pytest.param(ZScore(), readout(LINE[:5]), math.nan, id="z-score: too short a past"),
        *(
            pytest.param(measure, readout([*LINE, math.nan]), math.nan, id=f"nan now: {measure}")
            for measure in (NEWEST, RatioOfSignals("x"), Growth(10), RelativeToMedian(5), Slope(10), ZScore())
        ),
    ],
)
def test_a_measure_is_a_number_or_nan(measure: Measure, given: SignalReader, expected: float) -> None:
    assert measure.of("x", given) == pytest.approx(expected, nan_ok=True)


def test_every_measure_says_what_it_is_of() -> None:
    measures = (NEWEST, RatioOfSignals("y"), Growth(10), RelativeToMedian(5), Slope(10), ZScore())
    assert [measure.told("x") for measure in measures] == [
        "x",
        "x/y",
        "growth of x over 10 steps",
        "x over its median of 5 steps",
        "slope of x over 10 steps",
        "z-score of x",
    ]


def test_what_no_rule_asks_for_any_more_is_forgotten() -> None:
    given = readout(LINE)
    after = given.memory.after(given, step=20, windows=(), baselines=("x",))
    assert (after.windows, set(after.baselines)) == ({}, {"x"})
