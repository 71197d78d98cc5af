"""The demo of bound adaptation: the bounds of the healthy run follow a target mask rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TARGET_MASK_RATE = 0.05
SETTING: dict[str, Any] = {
    "mode": "apply",
    "target_mask_rate": TARGET_MASK_RATE,
    "window_sequences": 2048,
    "every_steps": 4,
}
"""A window of about 20 lab steps: shorter windows follow noise, longer ones lag behind a run of 240 steps."""
SETTLED_STEPS = 80
"""The number of newest steps over which the mask rate is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationSummary:
    """How often a run's bounds moved, and from where to where, as text.

    Mask rates: `settled` is measured over the newest steps; `first` and `last` are what the bounds at the start and at
    the end would give over all stored steps.
    """

    n_moves: int
    first_bound: str
    last_bound: str
    settled: float
    first: float
    last: float


def adaptation_lines(adaptation: AdaptationSummary, *, run: str) -> list[str]:
    """Return the adaptation as lines of text."""
    asked = f"Adapted: asked to reject {TARGET_MASK_RATE:.0%} of the {run} run"
    if not adaptation.n_moves:
        return [f"{asked}, trmon left its bounds where they were: the run was too short."]
    return [
        f"{asked}, trmon moved its bounds {adaptation.n_moves} times, "
        f"{adaptation.first_bound} to {adaptation.last_bound}: it rejected {adaptation.settled:.1%} of the last "
        f"{SETTLED_STEPS} steps.",
        f"  On all of its stored steps the first bounds would have rejected {adaptation.first:.1%}, the last ones "
        f"{adaptation.last:.1%}.",
    ]
