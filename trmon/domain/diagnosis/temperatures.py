"""The temperature of the rollout over that of the trainer's log-probs, where finding T holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.diagnosis.history import ENGINE_PAIRS, History
from trmon.domain.diagnosis.run_config import config_number

NEWEST_ROWS = 20
ROLLOUT_OPTIONS = ("actor_rollout_ref.rollout.temperature", "temperature")
"""The sampling temperature in the configurations of verl and of TRL."""


@dataclass(frozen=True, slots=True)
class TemperatureRatio:
    """The bounds of T_rollout/T_trainer. Source: formulas, section 9, T."""

    lowest: float
    highest: float

    def sentence(self, config: Mapping[str, Any]) -> str:
        """Return what is known of the two temperatures, as numbers if the configuration has the sampling one."""
        given = next((known for name in ROLLOUT_OPTIONS if (known := config_number(config, name))), None)
        shown = f"{self.lowest:.2f} to {self.highest:.2f}"
        if given is None:
            return f"The rollout's temperature is {shown} times that of the trainer's log-probs."
        trainer = f"{given / self.highest:.2f} to {given / self.lowest:.2f}"
        return (
            f"The rollout samples at {given:g} as configured; the trainer's log-probs are of {trainer}, "
            f"as the ratio is {shown}."
        )


def temperature_ratio(history: History) -> TemperatureRatio | None:
    """Return the ratio from the newest rows; None if it is not known or not positive."""
    ends = [_median(history, name) for name in ("temperature_near", "temperature_far")]
    if any(math.isnan(end) or end <= 0 for end in ends):
        return None
    return TemperatureRatio(min(ends), max(ends))


def _median(history: History, signal: str) -> float:
    values = history.find(signal, pairs=ENGINE_PAIRS)[1][-NEWEST_ROWS:]
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan
