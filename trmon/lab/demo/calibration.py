"""The demo of calibration: the bounds that trmon measured on the healthy run, beside the fixed ones of `trm`."""

from __future__ import annotations

from dataclasses import dataclass

FIXED_POLICY = "trm"
SETTLED_STEPS = 80
"""The number of newest steps over which the mask rate is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """How a run was calibrated: the reasons of its calibrations, oldest first, and the bound in force, as text.

    Mask rates: `settled` is measured over the newest steps; `fixed` is what the fixed bounds would give over all stored
    steps.
    """

    reasons: tuple[str, ...]
    bound: str
    settled: float
    fixed: float


def calibration_lines(calibration: CalibrationSummary, *, run: str) -> list[str]:
    """Return the calibration as lines of text."""
    if not calibration.reasons:
        return [f"Calibrated: nothing. The {run} run was too short to measure its bounds."]
    return [
        f"Bounds of the {run} run, measured on its own first steps: {calibration.reasons[0]}.",
        f"  In force at the end: {calibration.bound}; {calibration.settled:.1%} of the last {SETTLED_STEPS} steps were "
        f"rejected. The fixed bounds of {FIXED_POLICY} would have rejected {calibration.fixed:.1%} of all its steps.",
    ]
