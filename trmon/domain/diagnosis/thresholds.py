"""The thresholds of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds of formulas, section 9; the last two are specific to this implementation.

    `rising` is the growth of a median over 50 rows above which a signal is rising; `nucleus_outside_band` is how many
    tokens, per saturated token, may have a ratio outside [0.5, 5] if nucleus sampling saturated them.
    """

    pearson_healthy: float = 0.99
    pearson_ill: float = 0.95
    ppl_ratio: float = 0.01
    kl_healthy: float = 0.02
    kl_ill: float = 0.05
    prob_diff_max: float = 0.5
    k3_excess: float = 1.0
    saturated_fraction: float = 0.001
    ratio_shift_errors: float = 4.0
    ratio_shift: float = 0.02
    kl_k3: float = 0.05
    chi2_moderate: float = 0.3
    chi2_severe: float = 1.0
    ess: float = 0.5
    ess_seq_relative: float = 0.3
    clip_fraction: float = 0.2
    length_growth: float = 1.20
    grad_norm_relative: float = 10.0
    zero_variance_groups: float = 0.9
    router_flip_rate: float = 1e-3
    tv: float = 0.01

    rising: float = 1.1
    nucleus_outside_band: float = 0.02
