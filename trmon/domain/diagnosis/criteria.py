"""The condition of each finding. Source: formulas, section 9, and docs/decisions/0007."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from trmon.domain.diagnosis.conditions import (
    HOLDING,
    LASTING,
    ONCE,
    RECURRING,
    HistoryAllOf,
    HistoryAnyOf,
    HistoryCondition,
    HistoryLimit,
    HistoryNot,
    HistoryUnless,
)
from trmon.domain.diagnosis.history import ENGINE_PAIRS
from trmon.domain.finding import Finding
from trmon.domain.rules.condition import ThresholdSide


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


def collapse_conditions(
    limits: Thresholds, *, drift: tuple[HistoryCondition, ...]
) -> Mapping[Finding, HistoryCondition]:
    """Return the conditions of N, S, L, H, V and R.

    Args: drift: the conditions that explain an unusual entropy, so that it is no finding of its own.
    """
    return {
        Finding.NOT_A_NUMBER: _not_a_number(limits),
        Finding.ENTROPY: HistoryAllOf((_entropy(limits), *map(HistoryUnless, drift))),
        Finding.LENGTH: _length(limits),
        Finding.NO_LEARNING_SIGNAL: _no_learning_signal(limits),
        Finding.VERSION_SPAN: HistoryAllOf(
            (
                above(signal="version_span_max", threshold=limits.version_span, optional=True),
                above(signal="version_span_rise", threshold=0.0, optional=True),
            )
        ),
        Finding.REWARD_COLLAPSE: HistoryAnyOf(
            (
                above(signal="reward_collapse", threshold=limits.reward_fall, quorum=HOLDING),
                above(signal="reward_decline", threshold=limits.reward_fall, quorum=LASTING),
            )
        ),
    }


def _not_a_number(limits: Thresholds) -> HistoryCondition:
    both = HistoryAllOf(
        (
            above(signal="nonfinite_steps", threshold=0.0, quorum=ONCE),
            above(signal="invalid_fraction", threshold=0.0, quorum=ONCE, optional=True),
        )
    )
    return HistoryAnyOf((above(signal="nonfinite_steps", threshold=limits.nonfinite_steps, quorum=ONCE), both))


def _entropy(limits: Thresholds) -> HistoryCondition:
    fallen = HistoryAllOf(
        (
            below(signal="entropy_relative", threshold=limits.entropy_collapse),
            below(signal="entropy_rise", threshold=0.0),
        )
    )
    falling = above(signal="reward_decline", threshold=limits.reward_falling, optional=True)
    with_reward = HistoryAllOf((above(signal="entropy_relative", threshold=limits.entropy_rising), falling))
    risen = HistoryAllOf(
        (
            HistoryAnyOf((above(signal="entropy_relative", threshold=limits.entropy_explosion), with_reward)),
            above(signal="entropy_rise", threshold=0.0),
        )
    )
    return HistoryAnyOf((fallen, risen))


def _length(limits: Thresholds) -> HistoryCondition:
    hacked = HistoryAllOf(
        (
            above(signal="reward_length_corr_ema", threshold=limits.reward_length_corr, optional=True),
            above(signal="response_length_growth", threshold=limits.length_growth),
        )
    )
    capped = HistoryAllOf(
        (
            above(signal="length_limit_ema", threshold=limits.length_limit, optional=True),
            above(signal="length_limit_rise", threshold=0.0, optional=True),
        )
    )
    return HistoryAnyOf((below(signal="response_length_relative", threshold=limits.length_collapse), hacked, capped))


def _no_learning_signal(limits: Thresholds) -> HistoryCondition:
    equal = above(signal="zero_variance_groups_least", threshold=limits.zero_variance_groups)
    weak = below(signal="effective_signal_relative", threshold=limits.effective_signal, quorum=LASTING)
    return HistoryAnyOf((equal, weak))


above = partial(HistoryLimit, bound=ThresholdSide.ABOVE)
below = partial(HistoryLimit, bound=ThresholdSide.BELOW)


def finding_conditions(limits: Thresholds) -> Mapping[Finding, HistoryCondition]:
    """Return the conditions of all findings except healthy and unknown."""
    mismatch = HistoryAllOf((below(signal="engine_lag", threshold=1, rules_out=True), engines_differ(limits)))
    return {
        **collapse_conditions(limits, drift=(corrupt_logprobs(limits), temperature(limits), support_shift(limits))),
        Finding.SUPPORT_SHIFT: support_shift(limits),
        Finding.CORRUPT_LOGPROBS: corrupt_logprobs(limits),
        Finding.TEMPERATURE: temperature(limits),
        Finding.STALENESS: staleness(limits),
        Finding.MOE_ROUTING: HistoryAllOf((mismatch, router_flips(limits))),
        Finding.ENGINE_MISMATCH: mismatch,
        Finding.STEP_TOO_LARGE: step_too_large(limits),
        Finding.CLIP_SATURATION: HistoryAllOf(
            (
                above(signal="clip_fraction", threshold=limits.clip_fraction),
                above(signal="clip_fraction_rise", threshold=limits.rising),
            )
        ),
        Finding.VARIANCE_BLOWUP: variance_blowup(limits),
        Finding.MODERATE_DRIFT: HistoryAllOf(
            (
                above(signal="chi2_token", threshold=limits.chi2_moderate),
                HistoryNot(below(signal="ess_token", threshold=limits.ess)),
            )
        ),
        Finding.LENGTH_SURGE: above(signal="response_length_growth", threshold=limits.length_growth),
    }


def engines_differ(limits: Thresholds) -> HistoryCondition:
    """Return the condition of A without its lag: the two engines disagree."""
    return HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_ill, pairs=ENGINE_PAIRS),
            above(signal="prob_diff_max", threshold=limits.prob_diff_max, pairs=ENGINE_PAIRS),
            perplexities_differ(limits),
            above(signal="kl_k1", threshold=limits.kl_ill, pairs=ENGINE_PAIRS),
        )
    )


def perplexities_differ(limits: Thresholds) -> HistoryCondition:
    """Return the condition of A on perplexities: relevant, and beyond noise where the noise is known."""
    within_noise = HistoryAllOf(
        (
            above(signal="ppl_shift", threshold=-limits.ppl_shift_errors, pairs=ENGINE_PAIRS),
            below(signal="ppl_shift", threshold=limits.ppl_shift_errors, pairs=ENGINE_PAIRS),
        )
    )
    differs = above(signal="ppl_ratio", away_from=1.0, threshold=limits.ppl_ratio, pairs=ENGINE_PAIRS)
    return HistoryAllOf((differs, HistoryUnless(within_noise)))


def support_shift(limits: Thresholds) -> HistoryCondition:
    """Return the condition of A'': the mean ratio differs from 1, beyond noise and by a relevant amount."""
    return HistoryAllOf(
        (
            above(signal="ratio_shift", away_from=0.0, threshold=limits.ratio_shift_errors, pairs=ENGINE_PAIRS),
            above(signal="ratio_mean", away_from=1.0, threshold=limits.ratio_shift, pairs=ENGINE_PAIRS),
        )
    )


def temperature(limits: Thresholds) -> HistoryCondition:
    """Return the condition of T: the log-ratio follows the log-prob on both sides, as between two temperatures."""
    below_one = HistoryAllOf((support_shift(limits), below(signal="ratio_mean", threshold=1.0, pairs=ENGINE_PAIRS)))
    return HistoryAllOf(
        (
            above(signal="temperature_slope", away_from=0.0, threshold=limits.temperature_slope),
            above(signal="temperature_corr", away_from=0.0, threshold=limits.temperature_corr),
            HistoryUnless(below_one),
        )
    )


def corrupt_logprobs(limits: Thresholds) -> HistoryCondition:
    """Return the condition of A': the reported numbers cannot be log-probs of the sampled tokens.

    The e-value and the share of saturated tokens rule it out where they are known; logs of other tools lack them.
    """
    saturated = HistoryAllOf(
        (
            above(signal="saturated_fraction", threshold=limits.saturated_fraction),
            HistoryUnless(below(signal="mu_zero_saturated_share", threshold=limits.mu_zero_saturated_share)),
            HistoryUnless(nucleus_sampling(limits)),
        )
    )
    return HistoryAnyOf((_impossible(limits), saturated))


def router_flips(limits: Thresholds) -> HistoryCondition:
    """Return the condition of M beside A: more flips than a replay leaves; without one, than the first steps had."""
    replayed = above(signal="router_replay", threshold=0.0, rules_out=True)
    flips = above(signal="router_flip_rate", threshold=limits.router_flip_rate)
    relative = above(signal="router_flip_relative", threshold=limits.router_flip_relative)
    return HistoryAnyOf((HistoryAllOf((replayed, flips)), HistoryAllOf((HistoryUnless(replayed), relative))))


def nucleus_sampling(limits: Thresholds) -> HistoryCondition:
    """Return the condition under which saturated tokens are of a nucleus (A''), not of padding (A').

    A nucleus of one token has a log-prob of exactly 0.0, as padding has. But it saturates only tokens that the trainer
    also finds likely, so their ratios stay near 1, while padding affects likely and unlikely tokens alike.
    """
    inside_band = below(signal="saturated_outside_band", threshold=limits.nucleus_outside_band)
    return HistoryAllOf((support_shift(limits), inside_band))


def staleness(limits: Thresholds) -> HistoryCondition:
    """Return the condition of B: weights changed between the two sides of a pair, or a rollout was used too long.

    If pi_old was scored with newer weights than mu, the lag is in the pair that compares the engines.
    """
    k3 = above(signal="staleness_kl_k3", threshold=limits.kl_k3)
    drifted = HistoryAnyOf((k3, above(signal="staleness_chi2_token", threshold=limits.chi2_moderate)))
    in_engine_pair = HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_ill, pairs=ENGINE_PAIRS),
            above(signal="kl_k3", threshold=limits.kl_k3, pairs=ENGINE_PAIRS),
            above(signal="chi2_token", threshold=limits.chi2_moderate, pairs=ENGINE_PAIRS),
        )
    )
    has_lag, clean = above(signal="staleness_lag", threshold=0), HistoryNot(engines_differ(limits))
    grows = above(signal="staleness_growth", threshold=1)
    starts_small = HistoryNot(above(signal="staleness_kl_k3_early", threshold=limits.kl_k3, quorum=RECURRING))
    return HistoryAnyOf(
        (
            HistoryAllOf((above(signal="engine_lag", threshold=0), in_engine_pair)),
            HistoryAllOf((has_lag, clean, drifted, grows)),
            HistoryAllOf((HistoryNot(has_lag), clean, k3, starts_small)),
        )
    )


def step_too_large(limits: Thresholds) -> HistoryCondition:
    """Return the condition of G: a few updates at lag 0 move the policy far, or the gradient explodes."""
    moved = above(signal="staleness_kl_k3_early", threshold=limits.kl_k3, quorum=RECURRING)
    spiked = above(signal="grad_norm_relative", threshold=limits.grad_norm_relative, quorum=ONCE)
    return HistoryAnyOf((HistoryAllOf((below(signal="staleness_lag", threshold=1, rules_out=True), moved)), spiked))


def variance_blowup(limits: Thresholds) -> HistoryCondition:
    """Return the condition of D: a few tokens or sequences carry most of the importance weight."""
    return HistoryAnyOf(
        (
            below(signal="ess_token", threshold=limits.ess),
            above(signal="chi2_token", threshold=limits.chi2_severe),
            below(signal="ess_seq_relative", threshold=limits.ess_seq_relative),
            above(signal="grad_variance_rise", threshold=limits.rising, optional=True),
            drift_growing(limits),
        )
    )


def drift_growing(limits: Thresholds) -> HistoryCondition:
    """Return the condition of a page for drift: large, and far above the run's own start."""
    return HistoryAllOf(
        (
            above(signal="kl_k3_relative", threshold=limits.kl_k3_relative, optional=True),
            above(signal="kl_k3_ema", threshold=limits.kl_k3_growing, optional=True),
        )
    )


def unhealthy(limits: Thresholds) -> HistoryCondition:
    """Return the condition that excludes a healthy run even without a finding."""
    return HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_healthy, pairs=ENGINE_PAIRS),
            perplexities_differ(limits),
            above(signal="kl_k1", away_from=0.0, threshold=limits.kl_healthy, pairs=ENGINE_PAIRS),
        )
    )


def _impossible(limits: Thresholds) -> HistoryCondition:
    excess = HistoryAllOf(
        (
            above(signal="k3_excess", threshold=limits.k3_excess, pairs=ENGINE_PAIRS),
            HistoryUnless(below(signal="ln_e_value", threshold=limits.ln_e_value, pairs=ENGINE_PAIRS)),
        )
    )
    unrelated = HistoryAllOf(
        (
            above(signal="ln_e_value", threshold=limits.ln_e_value, pairs=ENGINE_PAIRS, optional=True),
            below(signal="prob_pearson", threshold=limits.pearson_unrelated, pairs=ENGINE_PAIRS),
        )
    )
    return HistoryAnyOf(
        (excess, unrelated, above(signal="invalid_fraction", threshold=limits.invalid_fraction, quorum=ONCE))
    )
