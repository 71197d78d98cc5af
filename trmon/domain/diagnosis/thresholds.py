"""The thresholds of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds of formulas, sections 9 and 10; the last two are specific to this implementation.

    `rising` is the growth of a median over 50 rows above which a signal is rising; `nucleus_outside_band` is how many
    tokens, per saturated token, may have a ratio outside [0.5, 5] if nucleus sampling saturated them.
    """

    pearson_healthy: float = 0.99
    pearson_ill: float = 0.95
    pearson_unrelated: float = 0.5
    ppl_ratio: float = 0.01
    ppl_shift_errors: float = 4.0
    kl_healthy: float = 0.02
    kl_ill: float = 0.05
    prob_diff_max: float = 0.5
    k3_excess: float = 1.0
    ln_e_value: float = 13.8155
    saturated_fraction: float = 0.001
    mu_zero_saturated_share: float = 0.5
    invalid_fraction: float = 0.01
    temperature_slope: float = 0.015
    temperature_corr: float = 0.25
    ratio_shift_errors: float = 4.0
    ratio_shift: float = 0.02
    kl_k3: float = 0.05
    chi2_moderate: float = 0.3
    chi2_severe: float = 1.0
    ess: float = 0.5
    ess_seq_relative: float = 0.3
    kl_k3_relative: float = 20.0
    kl_k3_growing: float = 0.5
    clip_fraction: float = 0.2
    length_growth: float = 1.20
    grad_norm_relative: float = 10.0
    zero_variance_groups: float = 0.9
    router_flip_rate: float = 1e-3
    router_flip_relative: float = 3.0
    reward_fall: float = 1.0
    reward_falling: float = 0.5
    entropy_collapse: float = 0.2
    entropy_explosion: float = 3.0
    entropy_rising: float = 1.2
    length_collapse: float = 0.5
    reward_length_corr: float = 0.5
    length_limit: float = 0.2
    effective_signal: float = 0.5
    version_span: float = 1.0
    nonfinite_steps: float = 1.0
    tv: float = 0.01

    rising: float = 1.1
    nucleus_outside_band: float = 0.02
