"""Runs as a diagnosis reads them: healthy in everything, but for what a test changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon.domain.diagnosis.diagnosis import Diagnosis, diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding
from trmon.domain.rules.condition import Truth

STEPS = 120

HEALTHY: dict[str, float] = {
    "mismatch_prob_pearson": 0.999,
    "mismatch_prob_diff_max": 0.05,
    "mismatch_ppl_ratio": 1.001,
    "mismatch_kl_k1": 1e-4,
    "mismatch_kl_k3": 1e-4,
    "mismatch_k3_excess": 0.01,
    "mismatch_ratio_mean": 1.0,
    "mismatch_ratio_shift": 0.5,
    "mismatch_chi2_token": 1e-4,
    "mismatch_ess_token": 0.999,
    "mismatch_tv": 1e-3,
    "mismatch_band_fraction": 0.0,
    "saturated_fraction": 0.0,
    "invalid_fraction": 0.0,
    "engine_lag": 0.0,
    "version_lag_max": 0.0,
    "staleness_kl_k3": 0.002,
    "staleness_chi2_token": 0.004,
    "clip_fraction": 0.02,
    "ess_seq_relative": 0.99,
    "response_length_growth": 1.0,
    "grad_norm": 1.0,
    "zero_variance_groups": 0.1,
    "mask_rate:geo_mask": 0.01,
    "mismatch_ln_e_value": -2.0,
    "mu_zero_saturated_share": 0.05,
    "temperature_slope": 0.001,
    "temperature_corr": 0.05,
    "nonfinite_steps": 0.0,
    "entropy_relative": 0.9,
    "entropy_rise": -0.001,
    "response_length_relative": 1.0,
    "effective_signal_relative": 0.9,
    "reward_collapse": 0.1,
    "reward_decline": 0.15,
}


def run(steps: int = STEPS, *, without: tuple[str, ...] = (), **changed: Any) -> History:
    """Return a run of so many steps; a change is a value throughout, or the values of the newest steps."""
    values = {name: np.full(steps, value) for name, value in HEALTHY.items() if name not in without}
    for name, change in changed.items():
        newest = np.atleast_1d(np.asarray(change, float))
        column = values.setdefault(name, np.full(steps, np.nan))
        column[:] = newest[0] if len(newest) == 1 else column
        column[steps - len(newest) :] = newest
    return History.of_rows(step=np.arange(steps), update=np.full(steps, -1), values=values)


def truth(finding: Finding, diagnosis: Diagnosis) -> Truth:
    if any(seen.finding is finding for seen in diagnosis.observed):
        return Truth.TRUE
    return Truth.UNKNOWN if any(lost.finding is finding for lost in diagnosis.unknown) else Truth.FALSE


def of_dict(signals: dict[str, float]) -> Diagnosis:
    return diagnose(History.of_signals(signals))
