"""Advice for a run's pipeline: its kinds, the method that suits each, and five anti-patterns. Source: [DRIFT]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.diagnosis.criteria import Thresholds
from trmon.domain.diagnosis.features import with_features
from trmon.domain.diagnosis.history import ENGINE_PAIRS, History, config_number, config_value, declares_replay
from trmon.domain.signals.derived_signals import ALIASES
from trmon_client.core.policies.policy import Policy


class PipelineKind(Enum):
    """A property of a pipeline that decides which method suits it; a run may have several."""

    SYNC_DENSE = "sync_dense"
    ASYNC = "async"
    MOE = "moe"
    QUANTISED = "quantised"

    @property
    def title(self) -> str:
        """The kind in words."""
        return _TITLES[self]


_TITLES = {
    PipelineKind.SYNC_DENSE: "Synchronous, dense",
    PipelineKind.ASYNC: "Asynchronous",
    PipelineKind.MOE: "Mixture of experts",
    PipelineKind.QUANTISED: "Quantised rollout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBy:
    """What shows something of a run: a signal or an option of its configuration, and its value as text."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """What advice reads of a run: its newest steps, its configuration, and its active policy."""

    history: History
    config: Mapping[str, Any]
    policy: Policy

    def value(self, signal: str) -> float:
        """Return the newest known value of a signal; NaN without one."""
        return self.history.newest(signal)[1]

    def shown(self, *signals: str) -> tuple[ShownBy, ...]:
        """Return the newest values of signals that are known."""
        found = (self.history.newest(signal) for signal in signals)
        return tuple(ShownBy(name=name, value=f"{value:.4g}") for name, value in found if not math.isnan(value))

    def option(self, *names: str) -> ShownBy | None:
        """Return the first option that the configuration has with a value."""
        found = ((name, config_value(self.config, name)) for name in names)
        return next((ShownBy(name=name, value=str(value)) for name, value in found if value is not None), None)


QUANTISED_OPTIONS = (
    *("actor_rollout_ref.rollout.quantization", "rollout_quantization", "quantization"),
    *("actor_rollout_ref.rollout.dtype", "engine.weight_format"),
)
QUANTISED_FORMATS = ("fp8", "float8", "int8", "int4", "int3", "fp4", "nvfp4", "mxfp", "awq", "gptq", "w8a8", "w4a16")


def pipeline_kinds(given: PipelineInput) -> dict[PipelineKind, tuple[ShownBy, ...]]:
    """Return the kinds of a run's pipeline with what shows each; without any other it is synchronous and dense.

    Source: [DRIFT], advice by pipeline.
    """
    shown = {
        PipelineKind.ASYNC: _shows_lag(given),
        PipelineKind.MOE: _shows_experts(given),
        PipelineKind.QUANTISED: _shows_quantisation(given),
    }
    found = {kind: shown_by for kind, shown_by in shown.items() if shown_by}
    return found or {PipelineKind.SYNC_DENSE: given.shown("version_lag_max")}


def _shows_lag(given: PipelineInput) -> tuple[ShownBy, ...]:
    """Return the largest lag if most steps have one: a lag now and then is a late rollout."""
    lags = given.history.find("version_lag_max")[1]
    known = lags[~np.isnan(lags)]
    if not len(known) or not np.median(known) > 0:
        return ()
    return (ShownBy(name="version_lag_max", value=f"{known.max():.4g}"),)


def _shows_experts(given: PipelineInput) -> tuple[ShownBy, ...]:
    measured = given.shown("router_flip_rate", "max_vio")
    if declares_replay(given.config):
        return (*measured, ShownBy(name="router_replay", value="declared"))
    return measured


def _shows_quantisation(given: PipelineInput) -> tuple[ShownBy, ...]:
    options = (given.option(name) for name in QUANTISED_OPTIONS)
    return tuple(one for one in options if one is not None and one.value.lower().startswith(QUANTISED_FORMATS))


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


METHODS = {
    PipelineKind.SYNC_DENSE: "PPO-clip with decoupled geometric rejection: policy geo_mask; verl's preset "
    "decoupled_geo_rs with 0.99_1.01. The geometric mean, never the sequence sum, which drops the longest responses.",
    PipelineKind.ASYNC: "Bound the staleness, as a setting of yours and not of the algorithm, and scale the learning "
    "rate by the effective sample size (VCPO): trmon_client.advice.scale_lr. Decoupled, with a proximal policy.",
    PipelineKind.MOE: "Align the routing before any tuning of the loss: IcePop at once, replay of the rollout's "
    "routing (R3) or Keep Routing for production; log router_flip_rate.",
    PipelineKind.QUANTISED: "Treat the quantised policy as a behaviour policy of its own (QuRL, QaRL), not as a "
    "defect: keep the ratio to it in the loss, and judge its mismatch against the run's own start.",
}
"""The method for each kind of pipeline."""
NO_CORRECTION = (
    "Below kl 0.05 and chi2_token 0.3 no correction may be needed: in the first few hundred steps, measure only."
)
CORRECTION = (
    "Correct: bypass saves a forward pass where the mismatch is small; decoupled where rollouts are used late or often."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineMethod:
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: PipelineKind
    title: str
    shown_by: tuple[ShownBy, ...]
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAdvice:
    """The methods for a run's pipeline, whether it needs a correction now, and the five anti-patterns."""

    methods: tuple[PipelineMethod, ...]
    correction: str | None
    correction_shown_by: tuple[ShownBy, ...]
    anti_patterns: tuple[AntiPattern, ...]


def pipeline_advice(given: PipelineInput) -> PipelineAdvice:
    """Return the advice for a run. Source: [DRIFT], advice by pipeline; formulas, section 9."""
    return PipelineAdvice(
        methods=tuple(
            PipelineMethod(kind=kind, title=kind.title, shown_by=shown_by, method=METHODS[kind])
            for kind, shown_by in pipeline_kinds(given).items()
        ),
        correction=_correction(given),
        correction_shown_by=given.shown("kl_k1", "chi2_token"),
        anti_patterns=anti_patterns(given),
    )


def _correction(given: PipelineInput) -> str | None:
    """Return whether the drift asks for a correction; None where it was not measured."""
    limits, kl, chi2 = Thresholds(), given.value("kl_k1"), given.value("chi2_token")
    if math.isnan(kl) or math.isnan(chi2):
        return None
    return NO_CORRECTION if abs(kl) < limits.kl_ill and chi2 < limits.chi2_moderate else CORRECTION
