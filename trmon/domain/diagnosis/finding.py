"""Findings of a diagnosis, by the letters of formulas, section 9, and their evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.rules.condition import ThresholdSide, Truth


class Finding(Enum):
    """The findings of a diagnosis; `healthy` and `unknown` are the only one if they occur."""

    SUPPORT_SHIFT = "A''"
    CORRUPT_LOGPROBS = "A'"
    STALENESS = "B"
    MOE_ROUTING = "M"
    ENGINE_MISMATCH = "A"
    STEP_TOO_LARGE = "G"
    CLIP_SATURATION = "E"
    VARIANCE_BLOWUP = "D"
    MODERATE_DRIFT = "C"
    LENGTH_SURGE = "F"
    NO_LEARNING_SIGNAL = "H"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"

    @property
    def title(self) -> str:
        """The title of the finding."""
        return _TITLES.get(self) or self.name.lower().replace("_", " ")


_TITLES = {
    Finding.CORRUPT_LOGPROBS: "corrupt log-probs",
    Finding.MOE_ROUTING: "routing of experts differs",
    Finding.VARIANCE_BLOWUP: "variance blow-up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A signal beyond its threshold: its newest value beyond it, and the step since which it has been.

    `away_from` is the point to which a distance refers, such as 1 for a ratio.
    """

    signal: str
    value: float
    bound: ThresholdSide
    threshold: float
    since_step: int
    away_from: float | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that a finding needs but that is unknown, and how to provide it."""

    signal: str
    provide: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finding: true with its evidence and first step, unknown with the missing signals, or false."""

    finding: Finding
    truth: Truth
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since_step: int | None = None
