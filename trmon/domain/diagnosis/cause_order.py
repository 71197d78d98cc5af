"""The order in which a diagnosis names its findings: causes before their symptoms."""

from __future__ import annotations

from trmon.domain.diagnosis.criteria import nucleus_sampling
from trmon.domain.diagnosis.finding import Finding
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.rules.condition import Truth

CAUSE_ORDER = (
    Finding.CORRUPT_LOGPROBS,
    Finding.SUPPORT_SHIFT,
    Finding.STALENESS,
    Finding.MOE_ROUTING,
    Finding.ENGINE_MISMATCH,
    Finding.STEP_TOO_LARGE,
    Finding.CLIP_SATURATION,
    Finding.VARIANCE_BLOWUP,
    Finding.MODERATE_DRIFT,
    Finding.LENGTH_SURGE,
    Finding.NO_LEARNING_SIGNAL,
)
"""Corrupt log-probs distort every other signal, so they come first; drift causes the blow-up of weights after it."""


def cause_order(history: History, limits: Thresholds) -> tuple[Finding, ...]:
    """Return the findings, causes first; nucleus sampling comes before the saturated tokens that it causes."""
    if nucleus_sampling(limits).read(history).truth is not Truth.TRUE:
        return CAUSE_ORDER
    return (Finding.SUPPORT_SHIFT, *(finding for finding in CAUSE_ORDER if finding is not Finding.SUPPORT_SHIFT))
