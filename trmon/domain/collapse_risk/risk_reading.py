"""A step's risk as people read it: the probability, what drives it, and what the model did not know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trmon.domain.collapse_risk.model_file import ModelFile
from trmon.domain.collapse_risk.risk_model import HORIZON, RiskModel, shipped_model
from trmon.domain.collapse_risk.risk_signals import RISK, missing_inputs, outside_inputs, risk_drivers
from trmon.domain.collapse_risk.risk_words import INPUT_WORDS

MAX_NAMED = 2
"""As many drivers as a sentence can hold."""


class RiskLevel(Enum):
    """What a probability asks for; `past` once the reward has collapsed or the run has finished: nothing."""

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
        return INPUT_WORDS[self.input]


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


def describe_drivers(signals: Mapping[str, float]) -> str:
    """Return what raises the risk of a row most, such as `gradient norm and reward`."""
    reading = read_risk(signals, shipped_model())
    return " and ".join(reading.driven_by if reading else ()) or "no single input"
