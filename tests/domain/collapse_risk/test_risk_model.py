"""The model of the risk: its probability and drivers, its reading in words, and its calibration on a fleet's runs."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from trmon.domain.collapse_risk.fleet_calibration import RiskCourse, calibrate
from trmon.domain.collapse_risk.risk_inputs import (
    INPUT_NAMES,
    N_INPUTS,
    N_KINDS,
    FeatureKind,
    InputHistory,
    Values,
    read_inputs,
    scaled,
)
from trmon.domain.collapse_risk.risk_model import (
    FORMAT,
    HORIZON,
    FittedFeature,
    FleetCalibration,
    ModelFile,
    RiskCalibration,
    RiskModel,
    Tree,
    decode_model,
    model_in_use,
    shipped_model,
    use_model,
)
from trmon.domain.collapse_risk.risk_reading import (
    OUTSIDE,
    RISK,
    RISK_SIGNALS,
    RiskLevel,
    calibration_words,
    read_risk,
    risk_sentence,
    risk_signals,
)
from trmon.domain.errors import InvalidInput
from trmon_client.core.signals.catalogue import signal_words

# The reward's draw-down decides first; below 1 the gradient does, by its change and then by its trend.
BY_BOTH = Tree(
    feature=(0, 1, 0, 0, 2, 0, 0),
    threshold=(1.0, 0.5, 0.0, 0.0, 0.25, 0.0, 0.0),
    left=(1, 3, 0, 0, 5, 0, 0),
    right=(2, 4, 0, 0, 6, 0, 0),
    log_odds=(0.0, -1.0, 3.0, -2.0, 0.5, 0.25, 1.5),
)
BY_REWARD = Tree((0, 0, 0), (0.5, 0.0, 0.0), (1, 0, 0), (2, 0, 0), (0.0, -1.0, 1.0))
FILE = ModelFile(
    format=FORMAT,
    name="test",
    fitted_on={},
    warn_at=0.3,
    page_at=0.6,
    calibration=RiskCalibration(-1.0, 0.5),
    most_reward_error=0.2,
    features=(
        FittedFeature("reward_mean.drawdown", 0.75, 0.0, 2.0),
        FittedFeature("grad_norm.change", 0.0, -1.0, 1.0),
        FittedFeature("grad_norm.trend", 0.0, 0.0, 1.0),
    ),
    trees=(BY_BOTH, BY_REWARD),
)
MODEL = RiskModel(FILE)
REWARD, GRADIENT = INPUT_NAMES.index("reward_mean"), INPUT_NAMES.index("grad_norm")


def _features(drawdown: float = math.nan, change: float = math.nan, trend: float = math.nan) -> Values:
    features = np.full((N_KINDS, N_INPUTS), np.nan)
    features[FeatureKind.DRAWDOWN, REWARD] = drawdown
    features[FeatureKind.CHANGE, GRADIENT] = change
    features[FeatureKind.TREND, GRADIENT] = trend
    return features


def _sigmoid(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))


@pytest.mark.parametrize(
    ("drawdown", "change", "trend", "reward_adds", "gradient_adds"),
    [
        (1.5, 0.0, 0.0, 3.0 + 1.0, 0.0),
        (1.0, 0.5, 0.0, -1.0 + 1.0, -2.0 + 1.0),
        (0.5, 0.6, 0.25, -1.0 - 1.0, 0.25 + 1.0),
        (0.0, 0.6, 0.3, -1.0 - 1.0, 1.5 + 1.0),
    ],
)
def test_the_log_odds_are_the_mean_of_the_leaves_and_what_each_input_adds_on_the_paths(
    drawdown: float, change: float, trend: float, reward_adds: float, gradient_adds: float
) -> None:
    estimate = MODEL.estimate(_features(drawdown=drawdown, change=change, trend=trend))
    slope = 0.5 / 2
    assert estimate.drivers[REWARD] == pytest.approx(slope * reward_adds)
    assert estimate.drivers[GRADIENT] == pytest.approx(slope * gradient_adds)
    assert estimate.probability == pytest.approx(_sigmoid(-1.0 + slope * (reward_adds + gradient_adds)))
    assert not estimate.outside.any()


def test_what_is_beyond_the_fitted_runs_is_named() -> None:
    estimate = MODEL.estimate(_features(drawdown=9.0, change=0.0, trend=0.5))
    assert np.flatnonzero(estimate.outside).tolist() == [REWARD]


def test_a_missing_input_counts_as_the_median_and_has_no_driver() -> None:
    estimate = MODEL.estimate(_features(change=0.6, trend=0.3))
    assert math.isnan(estimate.drivers[REWARD])
    assert estimate.probability == MODEL.estimate(_features(drawdown=0.75, change=0.6, trend=0.3)).probability


def test_without_any_input_there_is_no_probability() -> None:
    assert math.isnan(MODEL.estimate(_features()).probability)
    assert risk_signals(InputHistory(), MODEL) == {}


def test_many_moments_are_estimated_as_one_by_one() -> None:
    rng = np.random.default_rng(3)
    many = rng.normal(size=(50, N_KINDS, N_INPUTS))
    many[rng.random(many.shape) < 0.1] = np.nan
    model = shipped_model()
    single = [model.estimate(features).probability for features in many]
    np.testing.assert_allclose(model.probabilities(many.reshape(50, -1)), single, rtol=1e-12)


def _history(steps: int, **changed: float) -> InputHistory:
    """Return the history of rewards whose noise is a tenth of a batch's deviation, and of what changes at step 60."""
    rng, history = np.random.default_rng(1), InputHistory()
    for step in range(steps):
        numbers = {"reward_mean": 0.5 + 0.05 * rng.standard_normal(), "reward_std": 0.5, "grad_norm": 1.0}
        history = history.with_step(scaled(read_inputs({**numbers, **(changed if step >= 60 else {})})))
    return history


def test_the_signals_of_a_step_have_a_driver_for_each_input() -> None:
    signals = risk_signals(_history(62), MODEL)
    assert set(signals) < set(RISK_SIGNALS)
    assert 0.0 < signals[RISK] < 1.0
    assert signals[OUTSIDE] == 0.0
    reading = read_risk(signals, RiskModel(structs.replace(FILE, features=(*FILE.features, LAG))))
    assert (reading.missing, {driver.input for driver in reading.drivers}) == (
        ("version_lag_mean",),
        {"reward_mean", "grad_norm"},
    )


LAG = FittedFeature("version_lag_mean.trend", 0.0, 0.0, 1.0)
NOISE = len(INPUT_NAMES)


@pytest.mark.parametrize(
    ("history", "outside"),
    [
        pytest.param(_history(59), None, id="in a run's first rows"),
        pytest.param(_history(70, grad_norm=1e6), 2.0**GRADIENT, id="where an input is beyond the fitted runs"),
        pytest.param(_history(90, reward_mean=math.nan, grad_norm=1.0), 0.0, id="not where a row has no reward"),
    ],
)
def test_the_predictor_is_silent(history: InputHistory, outside: float | None) -> None:
    signals = risk_signals(history, MODEL)
    assert signals.get(OUTSIDE) == outside
    assert (RISK in signals) is (outside == 0.0)


@pytest.mark.parametrize("deviation", [0.5, None], ids=["of a small batch", "whose batch's deviation is not known"])
def test_the_predictor_is_silent_where_the_reward_is_noisier_than_the_fitted_runs(deviation: float | None) -> None:
    rng, history = np.random.default_rng(1), InputHistory()
    noise = 0.5 if deviation else 0.05
    for _ in range(90):
        numbers = {"reward_mean": 0.5 + noise * rng.standard_normal(), "grad_norm": 1.0}
        numbers |= {"reward_std": deviation} if deviation else {}
        history = history.with_step(scaled(read_inputs(numbers)))
    signals = risk_signals(history, MODEL)
    assert RISK not in signals
    assert int(signals[OUTSIDE]) >> NOISE == 1


def test_a_fleet_s_own_calibration_replaces_the_probability() -> None:
    fleet = FleetCalibration(50, 9, (0.2, 0.6), (0.01, 0.4), (0.0, 0.1), (0.1, 0.6))
    model = RiskModel(structs.replace(FILE, fleet=fleet))
    assert [model.of_risk(risk) for risk in (0.1, 0.2, 0.4, 0.9)] == pytest.approx([0.01, 0.01, 0.205, 0.4])
    features = _features(drawdown=1.5, change=0.0, trend=0.0)
    assert model.estimate(features).probability == model.of_risk(MODEL.estimate(features).probability)
    assert calibration_words(model.file) == "calibrated on 50 of your runs"


def test_the_shipped_model_reads_back_as_it_was_written() -> None:
    model = shipped_model()
    assert decode_model(msgspec.json.encode(model.file)).file == model.file
    assert model.is_read.any()
    assert 0.0 < model.file.warn_at <= model.file.page_at < 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 9}, "has format 9; this version reads 1"),
        ({"trees": ()}, "has no features or no trees"),
        ({"features": (FittedFeature("x.y", 0.0, 0.0, 1.0),) * 3}, "reads 'x.y', which is not computed"),
        ({"features": FILE.features[:1]}, "has a tree 0 whose nodes do not fit together"),
        ({"trees": (BY_REWARD, structs.replace(BY_REWARD, left=(0, 0, 0)))}, "has a tree 1 whose nodes"),
        ({"trees": (structs.replace(BY_REWARD, threshold=(0.5,)),)}, "has a tree 0 whose nodes"),
    ],
)
def test_a_file_that_cannot_be_evaluated_is_refused_with_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        decode_model(msgspec.json.encode(structs.replace(FILE, **changes)))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not a model of collapse"):
        decode_model(b"{}")


ANSWERS = {-2.0: 0.10604279544168642, 0.0: 0.11499210197047723, 0.5: 0.24084868917161056, 3.0: 0.8614945106979283}
"""The risk where every feature has one value."""


@pytest.mark.parametrize("value", ANSWERS)
def test_the_shipped_model_gives_the_stored_answers(value: float) -> None:
    estimate = shipped_model().estimate(np.full((N_KINDS, N_INPUTS), value))
    assert estimate.probability == pytest.approx(ANSWERS[value], abs=1e-12)


SMALL_FILE = structs.replace(
    FILE,
    features=tuple(
        FittedFeature(f"{name}.trend", 0.0, 0.0, 1.0) for name in ("grad_norm", "clip_fraction", "sampled_entropy")
    ),
    trees=(Tree((0,), (0.0,), (0,), (0,), (0.0,)),),
)
SMALL_MODEL = RiskModel(SMALL_FILE)
SIGNALS = {
    "collapse_risk": 0.63,
    "collapse_risk_outside": 0.0,
    "collapse_risk:clip_fraction": -0.5,
    "collapse_risk:grad_norm": 1.25,
    "reward_mean": 0.5,
}


def test_a_reading_has_drivers_and_names_what_is_missing() -> None:
    reading = read_risk(SIGNALS, SMALL_MODEL)
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
    assert read_risk(signals, SMALL_MODEL) is None


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
    reading = read_risk({**SIGNALS, "collapse_risk": probability}, SMALL_MODEL)
    assert reading.level(SMALL_FILE, is_past=is_past) is level


def test_a_risk_in_a_line_names_at_most_what_drives_it() -> None:
    worth = calibration_words(SMALL_FILE)
    said = risk_sentence(0.634, ("gradient norm", "reward"), calibration=worth)
    within = f"63% risk of collapse within {HORIZON} steps (not calibrated for your trainer)"
    assert said == f"{within}, driven by gradient norm and reward"
    assert risk_sentence(0.05, (), calibration="") == f"5% risk of collapse within {HORIZON} steps"


def test_every_input_has_words_of_the_catalogue() -> None:
    named = {name for name in INPUT_NAMES if signal_words(name) != name.replace("_", " ")}
    assert named == set(INPUT_NAMES)


SHIPPED = shipped_model()


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
    model = calibrate(SHIPPED, courses)
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
        calibrate(SHIPPED, fleet(n, collapsed=collapsed))


def test_a_process_predicts_with_the_model_that_it_was_given() -> None:
    model = calibrate(SHIPPED, fleet(45, collapsed=9))
    try:
        use_model(model)
        assert model_in_use() is model
    finally:
        use_model(None)
    assert model_in_use() is SHIPPED


def test_a_calibrated_model_is_read_as_it_was_written() -> None:
    model = calibrate(SHIPPED, fleet(45, collapsed=9))
    read: RiskModel = decode_model(msgspec.json.encode(model.file))
    assert read.file == model.file
