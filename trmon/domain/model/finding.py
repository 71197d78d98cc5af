"""Findings about a run, by the letters of formulas, sections 9 and 10."""

from __future__ import annotations

from enum import Enum


class Finding(Enum):
    """The findings of a diagnosis; `healthy` and `unknown` are the only one if they occur."""

    NOT_A_NUMBER = "N"
    CORRUPT_LOGPROBS = "A'"
    TEMPERATURE = "T"
    SUPPORT_SHIFT = "A''"
    STALENESS = "B"
    VERSION_SPAN = "V"
    MOE_ROUTING = "M"
    ENGINE_MISMATCH = "A"
    STEP_TOO_LARGE = "G"
    CLIP_SATURATION = "E"
    VARIANCE_BLOWUP = "D"
    MODERATE_DRIFT = "C"
    ENTROPY = "S"
    LENGTH = "L"
    LENGTH_SURGE = "F"
    NO_LEARNING_SIGNAL = "H"
    REWARD_COLLAPSE = "R"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"

    @property
    def title(self) -> str:
        """The title of the finding."""
        return _TITLES.get(self) or self.name.lower().replace("_", " ")


_TITLES = {
    Finding.CORRUPT_LOGPROBS: "corrupt log-probs",
    Finding.ENTROPY: "entropy out of range",
    Finding.LENGTH: "length collapse or hacking",
    Finding.MOE_ROUTING: "routing of experts differs",
    Finding.TEMPERATURE: "two temperatures",
    Finding.VARIANCE_BLOWUP: "variance blow-up",
    Finding.VERSION_SPAN: "versions mixed within a response",
}

CAUSES: tuple[Finding, ...] = tuple(f for f in Finding if f not in (Finding.HEALTHY, Finding.UNKNOWN))
"""The findings in the order in which a diagnosis names them: causes before their symptoms.

Values that are not numbers and corrupt log-probs distort every other signal, so they come first; drift causes the
blow-up of weights after it; a falling reward is what all of them lead to.
"""
