"""The summary of a run's newest steps."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.diagnosis import Diagnosis
from trmon.domain.health.sparkline import Sparkline
from trmon.domain.runs.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run's newest steps as of `made_at`."""

    made_at: float
    state: RunState
    diagnosis: Diagnosis
    reward: Sparkline
    kl: Sparkline
    mask_rate: float
    expected_step_seconds: float | None
