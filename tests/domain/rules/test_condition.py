"""Conditions of rules over signals."""

from __future__ import annotations

import math

import pytest

from trmon.domain.rules.condition import (
    NEWEST,
    AllOf,
    AnyOf,
    Comparison,
    Evaluation,
    Measure,
    SignalAbsent,
    ThresholdSide,
    Truth,
)
from trmon.domain.rules.signal_reader import SignalMemory, SignalReader


def above(signal: str, threshold: float, *, clear: float | None = None, away_from: float | None = None) -> Comparison:
    return Comparison(
        signal=signal,
        bound=ThresholdSide.ABOVE,
        threshold=threshold,
        clear=threshold if clear is None else clear,
        away_from=away_from,
    )


def below(signal: str, threshold: float) -> Comparison:
    return Comparison(signal=signal, bound=ThresholdSide.BELOW, threshold=threshold, clear=threshold)


def reader(**numbers: float) -> SignalReader:
    """Return a signal reader whose primary pair is total."""
    return SignalReader(numbers, "total")


@pytest.mark.parametrize(
    ("numbers", "value"),
    [
        pytest.param({"kl": 1.0, "mismatch_kl": 2.0, "total_kl": 3.0}, 1.0, id="the name itself comes first"),
        pytest.param({"mismatch_kl": 2.0, "total_kl": 3.0}, 2.0, id="then the mismatch pair"),
        pytest.param({"total_kl": 3.0, "staleness_kl": 4.0}, 3.0, id="then the primary pair"),
        pytest.param({"staleness_kl": 4.0}, math.nan, id="no other pair"),
    ],
)
def test_a_name_without_prefix_means_mismatch_or_primary(numbers: dict[str, float], value: float) -> None:
    assert reader(**numbers)["kl"] == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("condition", "numbers", "truth"),
    [
        pytest.param(above("x", 1), {"x": 1.5}, Truth.TRUE, id="above"),
        pytest.param(above("x", 1), {"x": 1.0}, Truth.FALSE, id="at the threshold is not beyond it"),
        pytest.param(below("x", 1), {"x": 0.5}, Truth.TRUE, id="below"),
        pytest.param(above("x", 1), {"x": math.inf}, Truth.TRUE, id="infinity is above everything"),
        pytest.param(above("x", 1), {"x": math.nan}, Truth.UNKNOWN, id="nan is unknown, not false"),
        pytest.param(above("x", 1), {}, Truth.UNKNOWN, id="a missing signal is unknown, not false"),
        pytest.param(above("x", 0.01, away_from=1.0), {"x": 0.9}, Truth.TRUE, id="away from a point, below it"),
        pytest.param(above("x", 0.01, away_from=1.0), {"x": 1.005}, Truth.FALSE, id="near a point"),
        pytest.param(SignalAbsent("x"), {"y": 0.0}, Truth.TRUE, id="absent: missing"),
        pytest.param(SignalAbsent("x"), {"x": math.nan}, Truth.TRUE, id="absent: nan"),
        pytest.param(SignalAbsent("x"), {"x": 0.0}, Truth.FALSE, id="absent: there"),
        pytest.param(AnyOf((above("x", 1), above("y", 1))), {"y": 2.0}, Truth.TRUE, id="any: one true is enough"),
        pytest.param(AnyOf((above("x", 1), above("y", 1))), {"y": 0.0}, Truth.UNKNOWN, id="any: unknown may be true"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"y": 0.0}, Truth.FALSE, id="all: one false is enough"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"y": 2.0}, Truth.UNKNOWN, id="all: unknown may be false"),
        pytest.param(AllOf((above("x", 1), above("y", 1))), {"x": 2.0, "y": 2.0}, Truth.TRUE, id="all true"),
    ],
)
def test_conditions_have_three_truths(
    condition: Comparison | SignalAbsent | AnyOf | AllOf, numbers: dict[str, float], truth: Truth
) -> None:
    assert condition.evaluate(reader(**numbers)).raised.truth is truth


def test_a_condition_names_the_comparison_that_decided() -> None:
    condition = AnyOf((above("x", 1), AllOf((below("lag", 1), above("y", 5)))))
    found = condition.evaluate(reader(x=0.0, lag=0.0, y=7.0)).raised
    assert found == Evaluation(Truth.TRUE, "y", 7.0, 5.0)


def test_a_trainer_scalar_may_be_named_with_a_prefix() -> None:
    assert reader(pi_norm=3.0)["scalar:pi_norm"] == 3.0


def test_a_lingering_condition_uses_the_clear_threshold() -> None:
    condition = above("x", 1.0, clear=0.5)
    assert condition.evaluate(reader(x=0.7)).raised.truth is Truth.FALSE
    assert condition.evaluate(reader(x=0.7)).lingering == Evaluation(Truth.TRUE, "x", 0.7, 0.5)


def measure_reader(values: list[float], **others: float) -> SignalReader:
    """Return a reader of the last of these values of x, one per step, that remembers all earlier ones."""
    memory = SignalMemory()
    for step, value in enumerate(values):
        row = SignalReader({"total_x": value, **others}, "total", memory)
        memory = memory.updated(row, step=step, windows=("x",), baselines=("x",))
    return SignalReader({"total_x": values[-1], **others}, "total", memory)


LINE = [1.0 + step for step in range(20)]
LABELS = {
    NEWEST: "x",
    Measure("ratio", to="y"): "x/y",
    Measure("growth", 10): "growth of x over 10 steps",
    Measure("relative", 5): "x over its median of 5 steps",
    Measure("slope", 10): "slope of x over 10 steps",
    Measure("zscore"): "z-score of x",
}
"""Each measure, and how alerts name its value."""


@pytest.mark.parametrize(
    ("measure", "given", "expected"),
    [
        pytest.param(NEWEST, measure_reader(LINE), 20.0, id="the newest value"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE, y=5.0), 4.0, id="over another signal"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE, y=0.0), math.inf, id="over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader([-1.0], y=0.0), -math.inf, id="a negative one over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader([0.0], y=0.0), math.nan, id="zero over zero"),
        pytest.param(Measure("ratio", to="y"), measure_reader(LINE), math.nan, id="over one that is missing"),
        pytest.param(Measure("growth", 10), measure_reader(LINE), 18.0 / 10.0, id="growth: medians of five"),
        pytest.param(Measure("growth", 100), measure_reader(LINE), math.nan, id="growth: too short a history"),
        pytest.param(
            Measure("relative", 5), measure_reader(LINE), 20.0 / 17.0, id="over the rolling median of the steps before"
        ),
        pytest.param(Measure("slope", 10), measure_reader(LINE), 1.0, id="slope"),
        pytest.param(Measure("zscore"), measure_reader([*LINE, 10.5 + 1.4826 * 5.0]), 1.0, id="z-score"),
        pytest.param(Measure("zscore"), measure_reader(LINE[:5]), math.nan, id="z-score: too short a history"),
        *(
            pytest.param(measure, measure_reader([*LINE, math.nan], y=1.0), math.nan, id=f"nan now: {label}")
            for measure, label in LABELS.items()
        ),
    ],
)
def test_a_measure_is_a_number_or_nan(measure: Measure, given: SignalReader, expected: float) -> None:
    assert measure.value("x", given) == pytest.approx(expected, nan_ok=True)


def test_every_measure_has_a_label() -> None:
    assert {measure: measure.label("x") for measure in LABELS} == LABELS


def test_the_history_of_a_signal_that_no_rule_needs_is_dropped() -> None:
    given = measure_reader(LINE)
    after = given.memory.updated(given, step=20, windows=(), baselines=("x",))
    assert (after.windows, set(after.baselines)) == ({}, {"x"})
