"""Criteria: the condition of every finding. Source: formulas, section 9, and docs/decisions/0007."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trmon.domain.diagnosis.conditions import (
    AT_TIMES,
    EVER,
    HistoryAllOf,
    HistoryAnyOf,
    HistoryCondition,
    HistoryLimit,
    HistoryNot,
)
from trmon.domain.diagnosis.finding import Finding
from trmon.domain.diagnosis.history import ENGINES
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.rules.condition import ThresholdSide

above = partial(HistoryLimit, bound=ThresholdSide.ABOVE)
below = partial(HistoryLimit, bound=ThresholdSide.BELOW)


def finding_conditions(limits: Thresholds) -> Mapping[Finding, HistoryCondition]:
    """Return the condition of every finding but healthy and unknown."""
    mismatch = HistoryAllOf((below(signal="engine_lag", threshold=1), engines_differ(limits)))
    flips = above(signal="router_flip_rate", threshold=limits.router_flip_rate)
    return {
        Finding.SUPPORT_SHIFT: support_shift(limits),
        Finding.CORRUPT_LOGPROBS: HistoryAnyOf((_impossible(limits), _saturated(limits))),
        Finding.STALENESS: staleness(limits),
        Finding.MOE_ROUTING: HistoryAllOf((mismatch, flips)),
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
        Finding.NO_LEARNING_SIGNAL: above(signal="zero_variance_groups_least", threshold=limits.zero_variance_groups),
    }


def engines_differ(limits: Thresholds) -> HistoryCondition:
    """Return A without its lag: the two sides of the pair disagree."""
    return HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_ill, pairs=ENGINES),
            above(signal="prob_diff_max", threshold=limits.prob_diff_max, pairs=ENGINES),
            above(signal="ppl_ratio", away_from=1.0, threshold=limits.ppl_ratio, pairs=ENGINES),
            above(signal="kl_k1", threshold=limits.kl_ill, pairs=ENGINES),
        )
    )


def support_shift(limits: Thresholds) -> HistoryCondition:
    """Return A'': the mean ratio is off by more than noise, and by more than nothing."""
    return HistoryAllOf(
        (
            above(signal="ratio_shift", away_from=0.0, threshold=limits.ratio_shift_errors, pairs=ENGINES),
            above(signal="ratio_mean", away_from=1.0, threshold=limits.ratio_shift, pairs=ENGINES),
        )
    )


def nucleus_sampling(limits: Thresholds) -> HistoryCondition:
    """Return what tells A'' from A' where tokens are saturated.

    A nucleus of one symbol says exactly 0.0 as padding does; but it saturates only tokens that the trainer finds
    likely too, so that their ratios stay near 1, where padding meets likely and unlikely tokens alike.
    """
    apart = below(signal="saturated_outside_band", threshold=limits.nucleus_outside_band)
    return HistoryAllOf((support_shift(limits), apart, HistoryNot(_impossible(limits))))


def staleness(limits: Thresholds) -> HistoryCondition:
    """Return B: weights moved between the two sides of a pair, or a rollout was used for too many updates.

    Where pi_old was scored with newer weights than mu, the lag lies in the pair that compares engines.
    """
    k3 = above(signal="staleness_kl_k3", threshold=limits.kl_k3)
    drifted = HistoryAnyOf((k3, above(signal="staleness_chi2_token", threshold=limits.chi2_moderate)))
    in_engine_pair = HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_ill, pairs=ENGINES),
            above(signal="kl_k3", threshold=limits.kl_k3, pairs=ENGINES),
            above(signal="chi2_token", threshold=limits.chi2_moderate, pairs=ENGINES),
        )
    )
    has_lag, clean = above(signal="staleness_lag", threshold=0), HistoryNot(engines_differ(limits))
    grows = above(signal="staleness_growth", threshold=1)
    starts_small = HistoryNot(above(signal="staleness_kl_k3_early", threshold=limits.kl_k3, quorum=AT_TIMES))
    return HistoryAnyOf(
        (
            HistoryAllOf((above(signal="engine_lag", threshold=0), in_engine_pair)),
            HistoryAllOf((has_lag, clean, drifted, grows)),
            HistoryAllOf((HistoryNot(has_lag), clean, k3, starts_small)),
        )
    )


def step_too_large(limits: Thresholds) -> HistoryCondition:
    """Return G: a few updates at lag 0 move the policy far, or the gradient explodes."""
    moved = above(signal="staleness_kl_k3_early", threshold=limits.kl_k3, quorum=AT_TIMES)
    spiked = above(signal="grad_norm_relative", threshold=limits.grad_norm_relative, quorum=EVER)
    return HistoryAnyOf((HistoryAllOf((below(signal="staleness_lag", threshold=1), moved)), spiked))


def variance_blowup(limits: Thresholds) -> HistoryCondition:
    """Return D."""
    return HistoryAnyOf(
        (
            below(signal="ess_token", threshold=limits.ess),
            above(signal="chi2_token", threshold=limits.chi2_severe),
            below(signal="ess_seq_relative", threshold=limits.ess_seq_relative),
            above(signal="grad_variance_rise", threshold=limits.rising, optional=True),
        )
    )


def unhealthy(limits: Thresholds) -> HistoryCondition:
    """Return what no healthy run shows, though it may be no finding."""
    return HistoryAnyOf(
        (
            below(signal="prob_pearson", threshold=limits.pearson_healthy, pairs=ENGINES),
            above(signal="ppl_ratio", away_from=1.0, threshold=limits.ppl_ratio, pairs=ENGINES),
            above(signal="kl_k1", away_from=0.0, threshold=limits.kl_healthy, pairs=ENGINES),
        )
    )


def _impossible(limits: Thresholds) -> HistoryCondition:
    return HistoryAnyOf(
        (
            above(signal="k3_excess", threshold=limits.k3_excess, pairs=ENGINES),
            above(signal="invalid_fraction", threshold=0.0, quorum=EVER),
        )
    )


def _saturated(limits: Thresholds) -> HistoryCondition:
    return above(signal="saturated_fraction", threshold=limits.saturated_fraction)
