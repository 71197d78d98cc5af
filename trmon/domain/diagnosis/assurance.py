"""What a diagnosis without a finding assures: the words between healthy and unknown, and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from trmon.domain.diagnosis.history import History

AGREEMENT_SIGNALS = ("kl_k3", "prob_pearson", "ppl_ratio", "chi2_token", "ess_token", "kl_k1")
"""Signals of how far the policies of a pair agree, the most telling ones first."""
TRAINING_SIGNALS = ("reward_ema", "entropy_relative", "response_length_relative", "grad_norm")
"""Signals by which a run without log-probs is judged."""
NEWEST_ROWS = 5
"""A signal is measured if it has a value in so many of the newest rows."""


class Assurance(Enum):
    """How much is known of a run without a finding. Source: formulas, section 9, verdicts."""

    HEALTHY = "healthy"
    NO_DRIFT_FOUND = "no drift found"
    TRAINING_HEALTHY = "training healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The newest value of a signal that was measured."""

    signal: str
    value: float


def measured(history: History, signals: tuple[str, ...]) -> tuple[Measurement, ...]:
    """Return the newest values of those of the signals that the newest rows have."""
    found = []
    for signal in signals:
        name, values = history.find(signal)
        known = values[-NEWEST_ROWS:]
        known = known[np.isfinite(known)]
        if len(known):
            found.append(Measurement(signal=name, value=float(known[-1])))
    return tuple(found)
