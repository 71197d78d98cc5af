"""The risk of a collapse as signals of a row, and as people read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, N_INPUTS, InputHistory, risk_features
from trmon.domain.collapse_risk.risk_model import HORIZON, ModelFile, RiskModel
from trmon_client.core.signals.catalogue import signal_words

RISK = "collapse_risk"
OUTSIDE = "collapse_risk_outside"
DRIVER_PREFIX = "collapse_risk:"
"""The prefix of what an input adds to the log-odds of the risk, before the input's name."""

DRIVERS = tuple(f"{DRIVER_PREFIX}{name}" for name in INPUT_NAMES)
RISK_SIGNALS = (RISK, OUTSIDE, *DRIVERS)
_BITS = 2.0 ** np.arange(N_INPUTS)


def risk_signals(history: InputHistory, model: RiskModel) -> dict[str, float]:
    """Return the signals of the risk after a step: none before a baseline, no driver for an input that is lacking."""
    estimate = model.estimate(risk_features(history.statistics))
    if math.isnan(estimate.probability):
        return {}
    drivers = zip(DRIVERS, estimate.drivers.tolist(), strict=True)
    known = {name: added for name, added in drivers if not math.isnan(added)}
    return {RISK: estimate.probability, OUTSIDE: float(_BITS @ estimate.outside), **known}


def outside_inputs(signals: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the inputs that were beyond what the model was fitted to; its signal has a bit for each."""
    bits = int(signals.get(OUTSIDE, 0.0))
    return tuple(name for place, name in enumerate(INPUT_NAMES) if bits >> place & 1)


def risk_drivers(signals: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the inputs of a row's risk and what each adds to its log-odds, the largest first."""
    drivers = ((name, signals[driver]) for name, driver in zip(INPUT_NAMES, DRIVERS, strict=True) if driver in signals)
    yield from sorted(drivers, key=lambda driver: -driver[1])


def missing_inputs(signals: Mapping[str, float], model: RiskModel) -> tuple[str, ...]:
    """Return the inputs that the model reads and a row has no driver of; none where the row has no risk."""
    if RISK not in signals:
        return ()
    inputs = zip(INPUT_NAMES, DRIVERS, model.is_read, strict=True)
    return tuple(name for name, driver, is_read in inputs if is_read and driver not in signals)


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

    `missing` inputs are read by the model and not sent by the run; `outside` ones are beyond what it was fitted to.
    """

    probability: float
    drivers: tuple[RiskDriver, ...]
    missing: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

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
    """Return the reading of a row's signals; None for a row without a risk, as those of a run's first steps."""
    known = {name: value for name, value in signals.items() if not math.isnan(value)}
    if RISK not in known:
        return None
    return RiskReading(
        probability=known[RISK],
        drivers=tuple(RiskDriver(input=name, log_odds=log_odds) for name, log_odds in risk_drivers(known)),
        missing=missing_inputs(known, model),
        outside=outside_inputs(known),
    )


def risk_sentence(probability: float, driven_by: Sequence[str]) -> str:
    """Return a risk in one line: `63% risk of collapse within 200 steps, driven by gradient norm and reward`."""
    driven = f", driven by {' and '.join(driven_by)}" if driven_by else ""
    return f"{probability:.0%} risk of collapse within {HORIZON} steps{driven}"
