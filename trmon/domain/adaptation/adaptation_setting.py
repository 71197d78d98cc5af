"""The setting of a run's adaptation: its mode, target and window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MIN_SEQUENCES = 256
"""With fewer sequences the bound stays: a tail of 5% would have 12 sequences or less."""
MAX_SEQUENCES = 65_536
MAX_EVERY_STEPS = 1_000_000
"""The limit of `every_steps`: the worker keeps the steps since the last change."""


DEFAULT_RATE = 0.05
"""The share of sequences that bounds reject unless a setting or a calibration says otherwise."""


class AdaptationMode(Enum):
    """What happens to a controller's proposal: it is not made, only shown, or applied as a policy version."""

    OFF = "off"
    RECOMMEND = "recommend"
    APPLY = "apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationSetting:
    """The setting of a run's adaptation.

    `target_mask_rate` is a fraction, None for the default: 0.05, or a calibrated policy's own rate. A proposal uses the
    newest `window_sequences`, and with `apply` one is made every `every_steps`. A bound stays within [floor_factor,
    ceiling_factor] times the bound that a person, the trainer or trmon's default set; for ratios the factors apply to
    |log bound|. The limits of a calibrated policy are its calibrated bounds and its ceilings.
    Errors: ValueError naming the field.
    """

    mode: AdaptationMode = AdaptationMode.OFF
    target_mask_rate: float | None = None
    window_sequences: int = 4096
    every_steps: int = 16
    floor_factor: float = 1e-3
    ceiling_factor: float = 10.0

    def __post_init__(self) -> None:
        rate = DEFAULT_RATE if self.target_mask_rate is None else self.target_mask_rate
        self._check("target_mask_rate", 0 < rate <= 0.5, "above 0 and at most 0.5")
        allowed = f"between {MIN_SEQUENCES} and {MAX_SEQUENCES}"
        self._check("window_sequences", MIN_SEQUENCES <= self.window_sequences <= MAX_SEQUENCES, allowed)
        self._check("every_steps", 1 <= self.every_steps <= MAX_EVERY_STEPS, f"between 1 and {MAX_EVERY_STEPS}")
        self._check("floor_factor", 0 < self.floor_factor <= 1, "above 0 and at most 1")
        self._check("ceiling_factor", 1 <= self.ceiling_factor <= 1e6, "between 1 and 1e6")

    def _check(self, field: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise ValueError(f"{field} must be {allowed}, and is {getattr(self, field)}")
