"""The reading of a row's risk: its level, its drivers in words, and what is uncertain."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from tests.domain.collapse_risk.test_risk_model import FILE as FITTED
from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES
from trmon.domain.collapse_risk.risk_model import HORIZON, FittedFeature, RiskModel, Tree
from trmon.domain.collapse_risk.risk_reading import RiskLevel, calibration_words, read_risk, risk_sentence
from trmon_client.core.signals.catalogue import signal_words

FILE = structs.replace(
    FITTED,
    features=tuple(
        FittedFeature(f"{name}.trend", 0.0, 0.0, 1.0) for name in ("grad_norm", "clip_fraction", "sampled_entropy")
    ),
    trees=(Tree((0,), (0.0,), (0,), (0,), (0.0,)),),
)
MODEL = RiskModel(FILE)
SIGNALS = {
    "collapse_risk": 0.63,
    "collapse_risk_outside": 0.0,
    "collapse_risk:clip_fraction": -0.5,
    "collapse_risk:grad_norm": 1.25,
    "reward_mean": 0.5,
}


def test_a_reading_has_drivers_and_names_what_is_missing() -> None:
    reading = read_risk(SIGNALS, MODEL)
    assert reading.probability == 0.63
    assert [(one.input, one.log_odds, one.words) for one in reading.drivers] == [
        ("grad_norm", 1.25, "gradient norm"),
        ("clip_fraction", -0.5, "clipped tokens"),
    ]
    assert reading.driven_by == ("gradient norm",), "what speaks against a collapse drives none"
    assert reading.missing == ("sampled_entropy",)


@pytest.mark.parametrize(
    "signals", [{}, {"reward_mean": 1.0}, {"collapse_risk": math.nan, "collapse_risk:clip_fraction": math.nan}]
)
def test_a_row_without_a_risk_has_no_reading(signals: dict[str, float]) -> None:
    assert read_risk(signals, MODEL) is None


@pytest.mark.parametrize(
    ("probability", "is_past", "level"),
    [
        (0.29, False, RiskLevel.LOW),
        (0.3, False, RiskLevel.WARN),
        (0.59, False, RiskLevel.WARN),
        (0.6, False, RiskLevel.PAGE),
        (0.99, True, RiskLevel.PAST),
    ],
)
def test_the_level_follows_the_thresholds_of_the_model(probability: float, is_past: bool, level: RiskLevel) -> None:
    reading = read_risk({**SIGNALS, "collapse_risk": probability}, MODEL)
    assert reading.level(FILE, is_past=is_past) is level


def test_a_risk_in_a_line_names_at_most_what_drives_it() -> None:
    worth = calibration_words(FILE)
    said = risk_sentence(0.634, ("gradient norm", "reward"), calibration=worth)
    within = f"63% risk of collapse within {HORIZON} steps (not calibrated for your trainer)"
    assert said == f"{within}, driven by gradient norm and reward"
    assert risk_sentence(0.05, (), calibration="") == f"5% risk of collapse within {HORIZON} steps"


def test_every_input_has_words_of_the_catalogue() -> None:
    named = {name for name in INPUT_NAMES if signal_words(name) != name.replace("_", " ")}
    assert named == set(INPUT_NAMES)
