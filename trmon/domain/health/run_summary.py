"""The stored summary of a run's newest steps: its sparklines, its step time and its risk of a collapse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.collapse_risk.risk_reading import RiskReading

POINTS = 48
DIGITS = 4
"""Significant digits: enough for such a small chart, and 500 sparklines are sent in one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A signal from its first to its last step in at most 48 points, None if unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]


def sparkline_of(steps: Any, values: Any) -> Sparkline:
    """Return means of the finite values of a signal [n] over ascending steps [n], n is 1 or more."""
    parts = np.array_split(np.asarray(values, float), min(POINTS, len(values)))
    return Sparkline(first_step=int(steps[0]), last_step=int(steps[-1]), values=tuple(map(_point, parts)))


def _point(part: Any) -> float | None:
    known = part[np.isfinite(part)]
    return float(f"{known.mean():.{DIGITS}g}") if len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryBasis:
    """What a summary is made of: it covers a run whose attempt, step and folded messages are still these."""

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
    reward: Sparkline
    kl: Sparkline
    mask_rate: float
    expected_step_seconds: float | None
    collapse_risk: RiskReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedSummary:
    """A run whose stored summary, made at `made_at`, does not cover its newest rows; None if it has none."""

    run_id: int
    basis: SummaryBasis
    is_live: bool
    made_at: float | None
