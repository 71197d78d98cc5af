"""The risk of a collapse as signals of a row, and as people read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trmon.domain.collapse_risk.risk_inputs import (
    INPUT_NAMES,
    N_INPUTS,
    REWARD,
    InputHistory,
    Statistic,
    reward_error,
    risk_features,
)
from trmon.domain.collapse_risk.risk_model import HORIZON, ModelFile, RiskModel
from trmon_client.core.signals.catalogue import signal_words

RISK = "collapse_risk"
OUTSIDE = "collapse_risk_outside"
DRIVER_PREFIX = "collapse_risk:"
"""The prefix of what an input adds to the log-odds of the risk, before the input's name."""

DRIVERS = tuple(f"{DRIVER_PREFIX}{name}" for name in INPUT_NAMES)
RISK_SIGNALS = (RISK, OUTSIDE, *DRIVERS)
FIRST_ROWS = 60
"""Rows with a reward before which the predictor is silent. Source: findings, section 2."""
_REWARD = INPUT_NAMES.index(REWARD)
_BITS = 2.0 ** np.arange(N_INPUTS + 1)


def risk_signals(history: InputHistory, model: RiskModel) -> dict[str, float]:
    """Return the signals of the risk after a step; no driver for an input that is lacking.

    The predictor is silent in a run's first rows, where an input is outside what it was fitted to, and where the
    reward is noisier: then there is no risk, only what is outside, a bit for each input and the highest for the noise.
    """
    statistics = history.statistics
    if statistics[Statistic.COUNT, _REWARD] < FIRST_ROWS:
        return {}
    estimate = model.estimate(risk_features(statistics))
    is_noisy = not reward_error(statistics) <= model.file.most_reward_error
    if is_noisy or estimate.outside.any():
        return {OUTSIDE: float(_BITS @ [*estimate.outside, is_noisy])}
    drivers = zip(DRIVERS, estimate.drivers.tolist(), strict=True)
    return {RISK: estimate.probability, OUTSIDE: 0.0, **{name: added for name, added in drivers if added == added}}


MAX_NAMED = 2
"""As many drivers as a sentence can hold."""


class RiskLevel(Enum):
    """The urgency of a probability; `past` once the reward has collapsed or the run has finished."""

    LOW = "low"
    WARN = "warn"
    PAGE = "page"
    PAST = "past"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskDriver:
    """What an input adds to the log-odds of a collapse; below 0 it speaks against one."""

    input: str
    log_odds: float

    @property
    def words(self) -> str:
        """The input in words."""
        return signal_words(self.input)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskReading:
    """The probability that a collapse begins within 200 steps, its drivers, the largest first, and what is uncertain.

    `missing` inputs are read by the model and not sent by the run.
    """

    probability: float
    drivers: tuple[RiskDriver, ...]
    missing: tuple[str, ...] = ()

    @property
    def driven_by(self) -> tuple[str, ...]:
        """The inputs that raise the risk most, in words; at most two."""
        return tuple(driver.words for driver in self.drivers[:MAX_NAMED] if driver.log_odds > 0.0)

    def level(self, file: ModelFile, *, is_past: bool = False) -> RiskLevel:
        """Return the level by the thresholds of a model. Args: is_past: nothing is left to predict."""
        if is_past:
            return RiskLevel.PAST
        if self.probability >= file.page_at:
            return RiskLevel.PAGE
        return RiskLevel.WARN if self.probability >= file.warn_at else RiskLevel.LOW


def read_risk(signals: Mapping[str, float], model: RiskModel) -> RiskReading | None:
    """Return the reading of a row's signals; None where the predictor is silent."""
    known = {name: value for name, value in signals.items() if not math.isnan(value)}
    if RISK not in known:
        return None
    driver_of = dict(zip(INPUT_NAMES, DRIVERS, strict=True))
    drivers = (RiskDriver(input=name, log_odds=known[one]) for name, one in driver_of.items() if one in known)
    read = [name for name, is_read in zip(INPUT_NAMES, model.is_read, strict=True) if is_read]
    return RiskReading(
        probability=known[RISK],
        drivers=tuple(sorted(drivers, key=lambda driver: -driver.log_odds)),
        missing=tuple(name for name in read if driver_of[name] not in known),
    )


def calibration_words(file: ModelFile) -> str:
    """Return what the number of a model is worth for a run of this fleet; said wherever the number is."""
    fleet = file.fleet
    return "not calibrated for your trainer" if fleet is None else f"calibrated on {fleet.runs} of your runs"


def risk_sentence(probability: float, driven_by: Sequence[str], *, calibration: str) -> str:
    """Return a risk in one line: `63% risk of collapse within 200 steps (not calibrated ...), driven by reward`."""
    driven = f", driven by {' and '.join(driven_by)}" if driven_by else ""
    worth = f" ({calibration})" if calibration else ""  # An older service does not say it.
    return f"{probability:.0%} risk of collapse within {HORIZON} steps{worth}{driven}"
