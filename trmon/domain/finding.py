"""Findings about a run, their forms and severities. Source: formulas, sections 9 and 10."""

from __future__ import annotations

import math
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

    @property
    def meaning(self) -> str | None:
        """What the finding means, in one plain sentence; None for `healthy` and `unknown`."""
        return _MEANINGS.get(self)


_TITLES = {
    Finding.CORRUPT_LOGPROBS: "corrupt log-probs",
    Finding.ENTROPY: "entropy out of range",
    Finding.LENGTH: "length collapse or hacking",
    Finding.MOE_ROUTING: "routing of experts differs",
    Finding.TEMPERATURE: "two temperatures",
    Finding.VARIANCE_BLOWUP: "variance blow-up",
    Finding.VERSION_SPAN: "versions mixed within a response",
}

_MEANINGS = {
    Finding.NOT_A_NUMBER: "Log-probs, losses or gradients are NaN or infinite.",
    Finding.CORRUPT_LOGPROBS: "The reported log-probs cannot be those of the sampled tokens.",
    Finding.TEMPERATURE: "Sampling and scoring use different temperatures.",
    Finding.SUPPORT_SHIFT: "The engine samples from a cut distribution (top-p, top-k); the trainer scores the whole.",
    Finding.STALENESS: "Rollouts are sampled or scored with weights that are too old.",
    Finding.VERSION_SPAN: "Weights changed while responses were being sampled.",
    Finding.MOE_ROUTING: "Engine and trainer send the same tokens to different experts.",
    Finding.ENGINE_MISMATCH: "Engine and trainer disagree although they have the same weights.",
    Finding.STEP_TOO_LARGE: "Single updates move the policy too far.",
    Finding.CLIP_SATURATION: "PPO clips many tokens: each rollout is used for too much training.",
    Finding.VARIANCE_BLOWUP: "A few tokens or sequences carry most of the gradient's weight.",
    Finding.MODERATE_DRIFT: "The policies drift apart, so far moderately.",
    Finding.ENTROPY: "The policy's entropy left its usual range: it no longer explores, or it samples noise.",
    Finding.LENGTH: "Responses became much shorter, or grow because longer ones earn more.",
    Finding.LENGTH_SURGE: "Responses grow fast.",
    Finding.NO_LEARNING_SIGNAL: "Nearly all answers to a prompt earn the same reward: there is little to learn from.",
    Finding.REWARD_COLLAPSE: "The reward fell far below its peak; what made it fall is not known.",
}

CAUSES: tuple[Finding, ...] = tuple(f for f in Finding if f not in (Finding.HEALTHY, Finding.UNKNOWN))
"""The findings in the order in which a diagnosis names them: causes before their symptoms.

Values that are not numbers and corrupt log-probs distort every other signal, so they come first; drift causes the
blow-up of weights after it; a falling reward is what all of them lead to.
"""


class FindingForm(Enum):
    """On which side a finding left its range; the values are the built-in rules that find each form."""

    ENTROPY_COLLAPSE = "entropy_collapse"
    ENTROPY_EXPLOSION = "entropy_explosion"

    @property
    def finding(self) -> Finding:
        """The finding that it is a form of."""
        return Finding.ENTROPY

    @property
    def title(self) -> str:
        """The title of the form, which stands for that of the finding."""
        return self.value.replace("_", " ")

    @property
    def meaning(self) -> str:
        """What the form means, in one plain sentence."""
        return _FORM_MEANINGS[self]


_FORM_MEANINGS = {
    FindingForm.ENTROPY_COLLAPSE: "The policy's entropy fell far below its start: it hardly explores any more and "
    "repeats the same answers.",
    FindingForm.ENTROPY_EXPLOSION: "The policy's entropy rises above its usual range: its answers become more and more "
    "random.",
}


def form_of_rule(finding: Finding | None, rule: str) -> FindingForm | None:
    """Return the form of a finding that a rule finds; None if the finding has no forms or another rule found it."""
    return next((form for form in FindingForm if form.value == rule and form.finding is finding), None)


def title_of(finding: Finding, form: FindingForm | None) -> str:
    """Return the title of a finding, that of its form where it is known."""
    return finding.title if form is None else form.title


def meaning_of(finding: Finding, form: FindingForm | None) -> str | None:
    """Return what a finding means, or its form where it is known; None for `healthy` and `unknown`."""
    return finding.meaning if form is None else form.meaning


class Severity(Enum):
    """The urgency of an alert: act now (page), investigate soon (warn), for information (info)."""

    PAGE = "page"
    WARN = "warn"
    INFO = "info"


JsonNumber = float | str | None
"""A number in JSON: null for NaN, and "inf" or "-inf"."""


def json_number(value: float) -> JsonNumber:
    """Return a number as JSON can express it: null for NaN, and infinities by name."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
