"""Quadrants: which kind of correction can work. Source: [DRIFT], SGA."""

from __future__ import annotations

from enum import Enum

from trmon.domain.diagnosis.conditions import HistoryLimit
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.rules.condition import ThresholdSide, Truth


class Quadrant(Enum):
    """Whether the average token drifts (tv), and whether a few tokens drift far (chi2)."""

    ON_POLICY = "on_policy"
    EVEN_DRIFT = "even_drift"
    HEAVY_TAIL = "heavy_tail"
    BOTH = "both"
    UNKNOWN = "unknown"

    @property
    def advice(self) -> str:
        """The correction that suffices."""
        return _ADVICE[self]


_ADVICE = {
    Quadrant.ON_POLICY: "nothing to correct",
    Quadrant.EVEN_DRIFT: "token-level correction suffices",
    Quadrant.HEAVY_TAIL: "mask sequences; token weights would explode",
    Quadrant.BOTH: "fix the system; no correction suffices",
    Quadrant.UNKNOWN: "tv and chi2_token are needed: pass rollout_logprobs with old_logprobs or logprobs",
}
_BY_TRUTHS = {
    (Truth.FALSE, Truth.FALSE): Quadrant.ON_POLICY,
    (Truth.TRUE, Truth.FALSE): Quadrant.EVEN_DRIFT,
    (Truth.FALSE, Truth.TRUE): Quadrant.HEAVY_TAIL,
    (Truth.TRUE, Truth.TRUE): Quadrant.BOTH,
}


def quadrant(history: History, limits: Thresholds) -> Quadrant:
    """Return the quadrant of a history's newest rows."""
    tv = HistoryLimit(signal="tv", bound=ThresholdSide.ABOVE, threshold=limits.tv).read(history)
    chi2 = HistoryLimit(signal="chi2_token", bound=ThresholdSide.ABOVE, threshold=limits.chi2_moderate).read(history)
    return _BY_TRUTHS.get((tv.truth, chi2.truth), Quadrant.UNKNOWN)
