"""What trainers pass in place of natural log-probs: found by value, and said in one way wherever it is found."""

from __future__ import annotations

import math
from enum import Enum

from trmon_client.core.inputs.checked_inputs import MAX_LOGPROB


class LogprobMistake(Enum):
    """A mistake by the name of the clause of `corrupt_logprobs` that it is in a run."""

    SIGN = "sign"
    PROBABILITIES = "probabilities"
    UNIT = "unit"

    @property
    def title(self) -> str:
        """What is given, in a few words: the title of the finding."""
        return _TITLES[self]

    @property
    def fix(self) -> str:
        """What to do, in a sentence: the first remedy of the finding."""
        return _FIXES[self]

    def said_of(self, side: str, *, base: str = "") -> str:
        """Return what is seen of a side, which is an argument or an engine, and its name, as a line without the fix."""
        seen = {"sign": "no value below 0", "probabilities": "values from 0 to 1 only", "unit": base}
        return f"{seen[self.value]} in {side}: {self.title}"


_TITLES = {
    LogprobMistake.SIGN: "log-probs with the wrong sign",
    LogprobMistake.PROBABILITIES: "probabilities in place of log-probs",
    LogprobMistake.UNIT: "log-probs in another base",
}
_FIXES = {
    LogprobMistake.SIGN: "Negate the log-probs that are passed: they are positive, so they are negative "
    "log-likelihoods.",
    LogprobMistake.PROBABILITIES: "Take the logarithm: probabilities are passed in place of log-probs.",
    LogprobMistake.UNIT: "Use natural logarithms for both policies: one of them is in another base, log2 or log10.",
}


def mistake_in_range(least: float, largest: float) -> LogprobMistake | None:
    """Return what values are whose least is 0 or more, some of them well above 0; None of log-probs, and of NaN."""
    if not (least >= 0 and largest > MAX_LOGPROB):
        return None
    return LogprobMistake.PROBABILITIES if largest <= 1 else LogprobMistake.SIGN


UNITS = {math.log(2): "log2", 1 / math.log(2): "log2", math.log(10): "log10", 1 / math.log(10): "log10"}
"""The base of one side by the slope of log p on log mu: where it is below 1 in log2 and above in log10, that of mu."""
UNIT_WITHIN, UNIT_RESIDUAL = 0.03, 0.25
"""The limits of the clause `unit`: of the slope's distance, relative, and of the share that it leaves unexplained."""


def distance_to_unit(slope: float) -> float:
    """Return the relative distance of a slope from the nearest of `UNITS`; NaN of NaN."""
    return min(abs(slope / unit - 1.0) for unit in UNITS)


def unit_mistake(slope: float, residual: float) -> tuple[str, bool] | None:
    """Return the base of one side and whether it is mu's; None where the slope is that of natural logarithms.

    Args: slope, residual: the signals `logp_unit` and `logp_unit_residual`.
    Source: findings, section 2b.
    """
    if not (distance_to_unit(slope) < UNIT_WITHIN and residual < UNIT_RESIDUAL):
        return None
    unit = min(UNITS, key=lambda one: abs(slope / one - 1.0))
    return UNITS[unit], (unit < 1) == (UNITS[unit] == "log2")
