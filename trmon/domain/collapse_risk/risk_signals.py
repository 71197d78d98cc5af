"""The risk of a step as signals of its row: the probability, what each input adds to it, and what is out of range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from trmon.domain.collapse_risk.input_history import InputHistory
from trmon.domain.collapse_risk.risk_features import risk_features
from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, N_INPUTS
from trmon.domain.collapse_risk.risk_model import RiskModel

RISK = "collapse_risk"
OUTSIDE = "collapse_risk_outside"
DRIVER_PREFIX = "collapse_risk:"
"""The prefix of what an input adds to the log-odds of the risk, before the input's name."""

DRIVERS = tuple(f"{DRIVER_PREFIX}{name}" for name in INPUT_NAMES)
RISK_SIGNALS = (RISK, OUTSIDE, *DRIVERS)
"""The names of all signals of the risk."""
_BITS = 2.0 ** np.arange(N_INPUTS)


def risk_signals(history: InputHistory, model: RiskModel) -> dict[str, float]:
    """Return the signals of the risk after a step; none before an input has as many values as a baseline.

    An input that the model reads and the run lacks has no driver.
    """
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
