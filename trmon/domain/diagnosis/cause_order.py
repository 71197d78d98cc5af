"""The order in which a diagnosis names its findings: causes before their symptoms."""

from __future__ import annotations

from trmon.domain.diagnosis.criteria import nucleus_sampling
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.model.finding import CAUSES, Finding
from trmon.domain.rules.condition import Truth


def cause_order(history: History, limits: Thresholds) -> tuple[Finding, ...]:
    """Return the findings, causes first; nucleus sampling comes before the saturated tokens that it causes."""
    if nucleus_sampling(limits).read(history).truth is not Truth.TRUE:
        return CAUSES
    return (Finding.SUPPORT_SHIFT, *(finding for finding in CAUSES if finding is not Finding.SUPPORT_SHIFT))
