"""The summary of a run's newest steps."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.diagnosis import Diagnosis
from trmon.domain.health.sparkline import Sparkline


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryBasis:
    """What a summary is made of: the run's attempt and newest step, and how far its messages were folded.

    A run whose basis is still the same has no row that its summary does not cover: rows change with one of the four.
    """

    attempt_id: int
    step: int
    report_id: int
    notice_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run's newest steps as of `made_at`; it is current while the basis of the run is the one it was made of."""

    run_id: int
    basis: SummaryBasis
    made_at: float
    diagnosis: Diagnosis
    reward: Sparkline
    kl: Sparkline
    mask_rate: float
    expected_step_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedSummary:
    """A run whose stored summary, made at `made_at`, does not cover its newest rows; None if it has none."""

    run_id: int
    basis: SummaryBasis
    is_live: bool
    made_at: float | None
