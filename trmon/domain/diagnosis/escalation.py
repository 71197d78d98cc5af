"""Escalation: which correction suffices for the measured drift. Source: [DRIFT], formulas, section 9."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from trmon.domain.diagnosis.conditions import HistoryAnyOf, HistoryLimit
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.observation import Evidence, Missing
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.rules.condition import ThresholdSide, Truth
from trmon.domain.signals.derived_signals import REFERENCE_POLICY, SHADOW_PREFIX

CHI2_WEIGHTS, CHI2_SYSTEM = 2.0, 4.0
MASK_RATE_WEIGHTS, MASK_RATE_SYSTEM = 0.10, 0.25
BAND_FRACTION_SYSTEM = 0.10
MASK_RATE = f"{SHADOW_PREFIX}{REFERENCE_POLICY}"
"""The mask rate of geo_mask: that of the active policy depends on bounds of our own, which say little of the drift."""


class Stage(Enum):
    """The mildest correction that suffices for the measured drift."""

    REJECTION = "rejection"
    REJECTION_AND_WEIGHTS = "rejection_and_weights"
    SYSTEM_FIX = "system_fix"
    UNKNOWN = "unknown"

    @property
    def advice(self) -> str:
        """The advice for the stage."""
        return _ADVICE[self]


_ADVICE = {
    Stage.REJECTION: "rejection sampling alone is enough",
    Stage.REJECTION_AND_WEIGHTS: "rejection sampling with token-level truncated weights",
    Stage.SYSTEM_FIX: "fix the system: correction would discard or distort too much",
    Stage.UNKNOWN: "unknown: signals are missing",
}


@dataclass(frozen=True, slots=True)
class Escalation:
    """The stage with its evidence, or with the missing signals.

    The effective sample size after rejection, which formulas lists too, is not recorded and not used.
    """

    stage: Stage
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()


def escalation(history: History, limits: Thresholds) -> Escalation:
    """Return the stage of the newest rows of a history."""
    system = HistoryAnyOf(
        (
            _above("chi2_token", CHI2_SYSTEM),
            _above(MASK_RATE, MASK_RATE_SYSTEM),
            _above("band_fraction", BAND_FRACTION_SYSTEM),
            HistoryLimit(signal="prob_pearson", bound=ThresholdSide.BELOW, threshold=limits.pearson_ill),
        )
    ).read(history)
    if system.truth is Truth.TRUE:
        return Escalation(Stage.SYSTEM_FIX, system.evidence)
    # formulas requires weights from exactly 2, or 0.10, on: the limit is just below.
    weights = HistoryAnyOf((_at_least("chi2_token", CHI2_WEIGHTS), _at_least(MASK_RATE, MASK_RATE_WEIGHTS))).read(
        history
    )
    if system.truth is Truth.UNKNOWN or weights.truth is Truth.UNKNOWN:
        return Escalation(Stage.UNKNOWN, missing=tuple(dict.fromkeys((*system.missing, *weights.missing))))
    if weights.truth is Truth.TRUE:
        return Escalation(Stage.REJECTION_AND_WEIGHTS, weights.evidence)
    return Escalation(Stage.REJECTION)


def _above(signal: str, threshold: float) -> HistoryLimit:
    return HistoryLimit(signal=signal, bound=ThresholdSide.ABOVE, threshold=threshold)


def _at_least(signal: str, threshold: float) -> HistoryLimit:
    return HistoryLimit(signal=signal, bound=ThresholdSide.ABOVE, threshold=math.nextafter(threshold, 0.0))
