"""The five anti-patterns of off-policy training: which of them a run's configuration and numbers show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trmon.domain.advice.pipeline_kinds import PipelineInput, ShownBy
from trmon.domain.diagnosis.criteria import Thresholds
from trmon.domain.diagnosis.features import with_features
from trmon.domain.diagnosis.history import ENGINE_PAIRS, config_number
from trmon.domain.signals.derived_signals import ALIASES

LIMITS = Thresholds()
CHECKED_STEPS = 20
"""The agreement at equal weights is the median of so many steps."""
NORMAL_PROB_DIFF_MEAN = 0.01
"""verl's FAQ: rollout_probs_diff_mean above this is a fault of precision."""
CLIP_RANGE = 0.2
"""PPO's range; a wider one is widened."""
CLIP_OPTIONS = (
    *("actor_rollout_ref.actor.clip_ratio_high", "actor_rollout_ref.actor.clip_ratio", "epsilon_high", "epsilon"),
    *("clip_ratio_high", "clip_ratio", "clip"),
)
IS_OPTIONS = (
    *("algorithm.rollout_correction.rollout_is", "rollout_correction.rollout_is", "vllm_importance_sampling_mode"),
    "rollout_is",
)
SEQUENCE_WEIGHTS = ("sequence", "sequence_truncate")
SEQUENCE_RULES = ("seq_mis", "seq_tis")
"""The token rules whose weight is the ratio of the whole sequence."""
LR_NAMES = ("lr", *ALIASES["lr"])


class Presence(Enum):
    """Whether a run shows an anti-pattern; unknown where what would tell was not sent."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiPattern:
    """One anti-pattern by its number in [DRIFT], whether the run shows it, why, and the numbers that show it."""

    number: int
    name: str
    presence: Presence
    why: str
    shown_by: tuple[ShownBy, ...]


def anti_patterns(given: PipelineInput) -> tuple[AntiPattern, ...]:
    """Return all five, in the order of their source. Source: [DRIFT], anti-patterns; formulas, section 9."""
    return (
        kl_before_agreement(given),
        sequence_weights_without_samples(given),
        widened_clip_range(given),
        surge_before_rate(given),
        averaged_difference(given),
    )


def kl_before_agreement(given: PipelineInput) -> AntiPattern:
    """Return 1: the KL is read as learning although the engines were not compared at the same weights."""
    history = given.history
    lag = with_features(history).find("engine_lag")[1]
    name, pearson = history.find("prob_pearson", pairs=ENGINE_PAIRS)
    checked = pearson[(lag == 0) & ~np.isnan(pearson)]
    shown = given.shown("kl_k1", "ref_kl", "engine_lag")
    if len(checked):
        usual = float(np.median(checked[-CHECKED_STEPS:]))
        agree = usual >= LIMITS.pearson_healthy
        shown = (*shown, ShownBy(name=f"{name} at lag 0", value=f"{usual:.4g}"))
        why = (
            "the engines agree at the same weights, so the KL is learning or lag"
            if agree
            else "the engines disagree at the same weights: part of the KL is mismatch, not learning"
        )
        return _pattern(1, Presence.ABSENT if agree else Presence.PRESENT, why, shown)
    if math.isnan(given.value("kl_k1")) and math.isnan(given.value("ref_kl")):
        return _pattern(1, Presence.UNKNOWN, "neither a KL nor the engines' agreement was sent", shown)
    return _pattern(1, Presence.PRESENT, "a KL is recorded, and the engines were never compared at lag 0", shown)


def sequence_weights_without_samples(given: PipelineInput) -> AntiPattern:
    """Return 2: weights of whole sequences although few of them count and the gradient's noise rises."""
    option = given.option(*IS_OPTIONS)
    by_policy = any(rule.rule in SEQUENCE_RULES for rule in given.policy.tokens)
    shown = given.shown("ess_token", "ess_seq", "grad_variance")
    if not by_policy and (option is None or option.value not in SEQUENCE_WEIGHTS):
        return _pattern(2, Presence.ABSENT, "no sequence is weighted", shown if option is None else (option, *shown))
    shown = (ShownBy(name="policy", value=given.policy.name) if by_policy or option is None else option, *shown)
    ess = given.value("ess_token")
    rise = with_features(given.history).newest("grad_variance_rise")[1]
    if math.isnan(ess):
        return _pattern(2, Presence.UNKNOWN, "the effective sample size was not measured", shown)
    if ess >= LIMITS.ess:
        return _pattern(2, Presence.ABSENT, "enough samples count", shown)
    if math.isnan(rise):
        return _pattern(
            2, Presence.UNKNOWN, "few samples count; the noise needs grad_variance (proxy 3) as scalar", shown
        )
    if rise > LIMITS.rising:
        return _pattern(2, Presence.PRESENT, "few samples count, and the gradient's noise rises: filter first", shown)
    return _pattern(2, Presence.ABSENT, "few samples count, yet the gradient's noise does not rise", shown)


def widened_clip_range(given: PipelineInput) -> AntiPattern:
    """Return 3: a clip range wider than PPO's while more than a fifth of the tokens is clipped."""
    fraction, option = given.value("clip_fraction"), given.option(*CLIP_OPTIONS)
    width = None if option is None else config_number(given.config, option.name)
    shown = (*given.shown("clip_fraction"), *(() if option is None else (option,)))
    if math.isnan(fraction):
        return _pattern(3, Presence.UNKNOWN, "clipping was not measured: pass advantages", shown)
    if fraction <= LIMITS.clip_fraction:
        return _pattern(3, Presence.ABSENT, "few tokens are clipped", shown)
    if width is None:
        return _pattern(3, Presence.UNKNOWN, "many tokens are clipped; the configuration names no clip range", shown)
    if width > CLIP_RANGE:
        return _pattern(3, Presence.PRESENT, "the range is wide and still clips many: one epoch, half the rate", shown)
    return _pattern(3, Presence.ABSENT, "many tokens are clipped, by the usual range: do not widen it", shown)


def surge_before_rate(given: PipelineInput) -> AntiPattern:
    """Return 4: responses surge and the learning rate was not cut: the reward is debugged too early."""
    history = given.history
    growth = history.find("response_length_growth")[1]
    rate = next((history.find(name)[1] for name in LR_NAMES if history.has(name)), np.full(len(history), math.nan))
    shown = given.shown("response_length_growth", *LR_NAMES)
    known = ~np.isnan(growth)
    if not known.any():
        return _pattern(4, Presence.UNKNOWN, "105 steps of lengths are needed", shown)
    if growth[known][-1] <= LIMITS.length_growth:
        return _pattern(4, Presence.ABSENT, "responses do not surge", shown)
    usual = np.flatnonzero(known & (growth <= LIMITS.length_growth))
    since = int(usual[-1]) + 1 if len(usual) else 0
    before, now = _last_known(rate[: since + 1]), _last_known(rate)
    if math.isnan(before) or math.isnan(now):
        return _pattern(4, Presence.UNKNOWN, "responses surge; send the learning rate as scalar lr", shown)
    if now < before:
        return _pattern(4, Presence.ABSENT, "responses surge, and the learning rate was cut since", shown)
    return _pattern(4, Presence.PRESENT, "responses surge at an uncut learning rate: halve it before the reward", shown)


def averaged_difference(given: PipelineInput) -> AntiPattern:
    """Return 5: the mean difference of probabilities looks normal while the largest one does not."""
    mean, largest = given.value("prob_diff_mean"), given.value("prob_diff_max")
    shown = given.shown("prob_diff_mean", "prob_diff_max")
    if math.isnan(mean) or math.isnan(largest):
        return _pattern(5, Presence.UNKNOWN, "the differences of probabilities were not measured", shown)
    if largest <= LIMITS.prob_diff_max:
        return _pattern(5, Presence.ABSENT, "the largest difference is small", shown)
    if mean < NORMAL_PROB_DIFF_MEAN:
        return _pattern(
            5, Presence.PRESENT, "the mean looks normal, the largest difference does not: look at it", shown
        )
    return _pattern(5, Presence.ABSENT, "mean and largest difference both show the fault", shown)


_NAMES = {
    1: "KL read as learning before the engines were compared at the same weights",
    2: "sequence-level importance weights with few effective samples and rising noise",
    3: "a clip range widened while many tokens are clipped",
    4: "a length surge debugged as a reward problem before the learning rate",
    5: "the largest probability difference averaged away",
}


def _pattern(number: int, presence: Presence, why: str, shown_by: tuple[ShownBy, ...]) -> AntiPattern:
    return AntiPattern(number=number, name=_NAMES[number], presence=presence, why=why, shown_by=shown_by)


def _last_known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else math.nan
