"""The steps that a calibration measures: after the warm-up, enough of them, with enough sequences."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from trmon.domain.adaptation.calibration import CalibrationStep, first_sample, second_sample
from trmon.domain.identity import BatchKey

WARM_UP = [min(step, 12) * 1e-7 for step in range(200)]
CONSTANT = [1e-6] * 200
DECAY = [1e-6 * 0.99**step for step in range(200)]
UNKNOWN = [math.nan] * 200


def steps(rates: Iterable[float], *, n_sequences: int = 256) -> list[CalibrationStep]:
    return [CalibrationStep(BatchKey(1, step, None), n_sequences, lr) for step, lr in enumerate(rates)]


def first(given: list[CalibrationStep], *, sequences: int = 2048) -> tuple[int, int] | None:
    """Return the sample's first and last step, which must not depend on how many steps followed."""
    found = first_sample(given, sequences=sequences)
    if found is None:
        return None
    place = found[0].key.step, found[-1].key.step
    assert first_sample(given[: place[1] + 1], sequences=sequences) == found
    assert first_sample(given[: place[1]], sequences=sequences) is None
    return place


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        pytest.param(UNKNOWN, 20, id="lr is not sent"),
        pytest.param(CONSTANT, 5, id="lr is constant"),
        pytest.param(DECAY, 5, id="lr decays from the start"),
        pytest.param(WARM_UP, 17, id="lr rises for 12 steps"),
        pytest.param([1e-6, *UNKNOWN[1:]], 5, id="lr is sent once"),
        pytest.param([*UNKNOWN[:30], *WARM_UP[30:]], 20, id="lr comes after step 20"),
    ],
)
def test_the_sample_starts_when_the_learning_rate_has_stopped_rising_for_five_steps(
    rates: list[float], start: int
) -> None:
    assert first(steps(rates)) == (start, start + 19)


def test_a_learning_rate_that_still_rises_is_waited_for() -> None:
    assert first(steps([step * 1e-9 for step in range(200)])) is None


def test_small_steps_make_a_longer_sample() -> None:
    assert first(steps(UNKNOWN, n_sequences=32)) == (20, 20 + 63)
    assert first(steps(UNKNOWN, n_sequences=1)) is None


def test_the_second_sample_is_the_newest_before_step_100() -> None:
    for n in (100, 101, 150):
        found = second_sample(steps(UNKNOWN)[:n], sequences=2048)
        assert found is not None
        assert (found[0].key.step, found[-1].key.step) == (80, 99)
    assert second_sample(steps(UNKNOWN)[:99], sequences=2048) is None
    assert second_sample(steps(UNKNOWN, n_sequences=8), sequences=2048) is None
