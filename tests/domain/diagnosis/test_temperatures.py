"""The two temperatures of finding T."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.diagnosis.diagnosis import TemperatureRatio, diagnose, temperature_ratio
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding


def history(n: int = 30, **changed: float) -> History:
    signals = {
        "mismatch_kl_k3": 0.01,
        "mismatch_temperature_near": 0.95,
        "mismatch_temperature_far": 0.88,
        "temperature_slope": -0.05,
        "temperature_corr": 0.6,
    }
    return History(np.arange(n), {name: np.full(n, value) for name, value in (signals | changed).items()})


def test_the_ratio_is_between_its_ends() -> None:
    assert temperature_ratio(history()) == TemperatureRatio(0.88, 0.95)
    assert temperature_ratio(history(mismatch_temperature_near=1.05, mismatch_temperature_far=1.2)) == TemperatureRatio(
        1.05, 1.2
    )


@pytest.mark.parametrize("far", [math.nan, math.inf, -0.3, 0.0])
def test_a_ratio_that_cannot_be_is_not_told(far: float) -> None:
    assert temperature_ratio(history(mismatch_temperature_far=far)) is None


def test_the_remedy_names_both_temperatures_where_the_sampling_one_is_known() -> None:
    found = diagnose(history())
    assert found.primary is Finding.TEMPERATURE
    rendered = found.rendered_remedy({"temperature": 0.9})
    assert rendered is not None
    assert "samples at 0.9 as configured; the trainer's log-probs are of 0.95 to 1.02" in rendered.fix
    assert rendered.trl["temperature"] == "0.9"
    without = found.rendered_remedy()
    assert without is not None
    assert "0.88 to 0.95 times" in without.fix
