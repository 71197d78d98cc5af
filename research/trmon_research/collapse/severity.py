"""The severity of a fall: the share of its peak that a run loses, and keeps lost for 100 updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon.domain.analysis.collapse import SPAN, WITHIN, smoothed
from trmon.domain.collapse_risk.risk_model import HORIZON

Floats = npt.NDArray[np.float64]
DECLINE, COLLAPSE = 0.15, 0.3
"""The grades: the share of the peak that is lost."""
HURT = 0.2
"""A run that never was so far below its peak, at no update, was never hurt."""


@dataclass(frozen=True, eq=False)
class Course:
    """The clean evaluation of a run, smoothed over 20 updates, and its peak so far, each [updates].

    The average begins at the first evaluation. Nothing of it looks ahead but the label of a moment, which is what comes
    after it. A spike of the gradient norm is no label.
    """

    average: Floats
    peak: Floats
    lasts: int = WITHIN

    @classmethod
    def of(cls, evaluated: Sequence[float], *, lasts: int = WITHIN) -> Course:
        """Return the course of the evaluation in force at each update. Args: lasts: updates that a fall must last."""
        average = np.array(smoothed([*(list(evaluated[:1]) * SPAN), *evaluated])[SPAN:])
        return cls(average, np.maximum.accumulate(average), lasts)

    @property
    def lost(self) -> Floats:
        """The share of the peak that is lost at each update."""
        return 1.0 - self.average / np.maximum(self.peak, 1e-9)

    @property
    def lasting(self) -> Floats:
        """The share lost at each update and at each of the `lasts` after it; NaN where fewer follow."""
        found, n = np.full(len(self.average), np.nan), len(self.average) - self.lasts
        for update in range(n):
            found[update] = 1.0 - self.average[update : update + self.lasts + 1].max() / max(self.peak[update], 1e-9)
        return found

    def onset(self, grade: float) -> int | None:
        """Return the first update of a fall of a grade that lasts; None without one."""
        fallen = np.flatnonzero(self.lasting >= grade)
        return int(fallen[0]) if len(fallen) else None

    def is_open(self, grade: float) -> bool:
        """Whether the run ends below a grade, too early to tell whether that lasts."""
        return bool(self.lost[-1] >= grade) and self.onset(grade) is None

    def begins(self, grade: float) -> Floats:
        """Return whether a fall of a grade begins within the 200 updates after each one, [updates].

        NaN where it is not known: at an update that is already so far below the peak, and where the run ends, or was
        stopped, too early to tell.
        """
        lasting, n = self.lasting, len(self.average)
        found = np.full(n, np.nan)
        for update in range(n):
            coming = lasting[update + 1 : update + 1 + HORIZON]
            if (coming >= grade).any():
                found[update] = 1.0
            elif update + HORIZON + self.lasts < n:
                found[update] = 0.0
        found[self.lost >= grade] = np.nan
        return found
