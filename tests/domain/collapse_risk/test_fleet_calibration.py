"""The calibration of the risk on the own ended runs of a fleet."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from trmon.domain.collapse_risk.fleet_calibration import RiskCourse, calibrate
from trmon.domain.collapse_risk.risk_model import RiskModel, decode_model, model_in_use, shipped_model, use_model
from trmon.domain.errors import InvalidInput

MODEL = shipped_model()


def fleet(n: int, *, collapsed: int, steps: int = 300) -> list[RiskCourse]:
    """Return runs whose risk is high in the last 200 steps before a collapse, and elsewhere four times too high."""
    rng, courses = np.random.default_rng(0), []
    for place in range(n):
        onset = steps if place < collapsed else None
        risks = rng.uniform(0.0, 0.4, steps)
        if onset is not None:
            risks[steps - 200 :] = rng.uniform(0.3, 0.9, 200)
        risks[:60] = math.nan
        courses.append(RiskCourse(range(steps), risks.tolist(), onset))
    return courses


def test_the_calibrated_risk_is_the_share_of_moments_that_a_collapse_followed() -> None:
    courses = fleet(50, collapsed=10)
    model = calibrate(MODEL, courses)
    calibration = model.file.fleet
    assert (calibration.runs, calibration.collapses) == (50, 10)
    assert list(calibration.probability) == sorted(calibration.probability)
    bounds = zip(calibration.low, calibration.probability, calibration.high, strict=True)
    assert all(0.0 <= low <= high <= 1.0 and low <= found + 0.1 for low, found, high in bounds)
    moments = np.concatenate([course.moments for course in courses])
    assert model.of_risk(0.1) < 0.02
    assert model.of_risk(0.8) == pytest.approx(1.0)
    said = np.array([model.of_risk(risk) for risk in moments[:, 0]])
    assert said.mean() == pytest.approx(moments[:, 1].mean(), abs=0.03)
    alarmed = [max(map(model.of_risk, course.risks[60:])) > model.file.warn_at for course in courses]
    assert sum(alarmed[10:]) <= 4, "a tenth of 40"
    assert all(alarmed[:10])


@pytest.mark.parametrize(
    ("n", "collapsed"), [(39, 10), (60, 4), (60, 57)], ids=["too few runs", "too few collapses", "too few others"]
)
def test_too_few_runs_are_refused_with_what_there_is(n: int, collapsed: int) -> None:
    with pytest.raises(InvalidInput, match=f"has {n} ended runs, of which {collapsed} collapsed; needs 40"):
        calibrate(MODEL, fleet(n, collapsed=collapsed))


def test_a_process_predicts_with_the_model_that_it_was_given() -> None:
    model = calibrate(MODEL, fleet(45, collapsed=9))
    try:
        use_model(model)
        assert model_in_use() is model
    finally:
        use_model(None)
    assert model_in_use() is MODEL


def test_a_calibrated_model_is_read_as_it_was_written() -> None:
    model = calibrate(MODEL, fleet(45, collapsed=9))
    read: RiskModel = decode_model(msgspec.json.encode(model.file))
    assert read.file == model.file
