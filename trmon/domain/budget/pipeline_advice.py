"""Advice for a run's pipeline: the method that suits its kinds, and five anti-patterns. Source: [DRIFT]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from trmon.domain.budget.off_policy_kinds import (
    CHECKED_STEPS,
    HEALTHY,
    PipelineInput,
    PipelineKind,
    Presence,
    pipeline_kinds,
)
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.configuration import config_number
from trmon.domain.framework_names.translation import names_of
from trmon.domain.signals.history import ENGINE_PAIRS, Array
from trmon_client.api.budget import (
    AntiPatternInfo,
    OffPolicyKindInfo,
    PipelineAdviceInfo,
    PipelineMethodInfo,
    ShownByInfo,
)

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
LR_NAMES = names_of("lr")
NOISE_RISES = builtin_catalogue().by_key["variance_blowup.gradient"].decisive.limit
PRESENT, ABSENT, UNKNOWN = Presence


Judged: TypeAlias = tuple[Presence, str, tuple[ShownByInfo, ...]]
"""Whether a run shows an anti-pattern, why, and the numbers that show it."""


def _kl_before_agreement(given: PipelineInput) -> Judged:
    """Return 1: the KL is read as learning although the engines were not compared at the same weights."""
    name, pearson = given.history.find("prob_pearson", pairs=ENGINE_PAIRS)
    checked = pearson[~(given.engine_lags > 0) & ~np.isnan(pearson)]
    shown = given.shown("kl_k1", "ref_kl", "engine_lag")
    if len(checked):
        usual = float(np.median(checked[-CHECKED_STEPS:]))
        agree = usual >= HEALTHY["prob_pearson"].least and given.stands("engine_mismatch") is None
        shown = (*shown, ShownByInfo(name=f"{name} at lag 0", value=f"{usual:.4g}"))
        why = (
            "the engines agree at the same weights, so the KL is learning or lag"
            if agree
            else "the engines disagree at the same weights: part of the KL is mismatch, not learning"
        )
        return ABSENT if agree else PRESENT, why, shown
    if math.isnan(given.value("kl_k1")) and math.isnan(given.value("ref_kl")):
        return UNKNOWN, "neither a KL nor the engines' agreement was sent", shown
    return PRESENT, "a KL is recorded, and the engines were never compared at lag 0", shown


def _sequence_weights_without_samples(given: PipelineInput) -> Judged:
    """Return 2: weights of whole sequences although few of them count and the gradient's noise rises."""
    option = given.option(*IS_OPTIONS)
    by_policy = any(rule.rule in SEQUENCE_RULES for rule in given.policy.tokens)
    shown = given.shown("ess_token", "ess_seq", "grad_variance")
    if not by_policy and (option is None or option.value not in SEQUENCE_WEIGHTS):
        return ABSENT, "no sequence is weighted", shown if option is None else (option, *shown)
    shown = (ShownByInfo(name="policy", value=given.policy.name) if by_policy or option is None else option, *shown)
    ess = given.value("ess_token")
    rise = _rise(given.history.find("grad_variance")[1])
    if math.isnan(ess):
        return UNKNOWN, "the effective sample size was not measured", shown
    if ess >= HEALTHY["ess_token"].least:
        return ABSENT, "enough samples count", shown
    if math.isnan(rise):
        return UNKNOWN, "few samples count; the noise needs grad_variance (proxy 3) as scalar", shown
    if rise > NOISE_RISES:
        return PRESENT, "few samples count, and the gradient's noise rises: filter first", shown
    return ABSENT, "few samples count, yet the gradient's noise does not rise", shown


def _widened_clip_range(given: PipelineInput) -> Judged:
    """Return 3: a clip range wider than PPO's while more than a fifth of the tokens is clipped."""
    fraction, option = given.value("clip_fraction"), given.option(*CLIP_OPTIONS)
    width = None if option is None else config_number(given.config, option.name)
    shown = (*given.shown("clip_fraction"), *(() if option is None else (option,)))
    if math.isnan(fraction):
        return UNKNOWN, "clipping was not measured: pass advantages", shown
    if fraction <= HEALTHY["clip_fraction"].most:
        return ABSENT, "few tokens are clipped", shown
    if width is None:
        return UNKNOWN, "many tokens are clipped; the configuration names no clip range", shown
    if width > CLIP_RANGE:
        return PRESENT, "the range is wide and still clips many: one epoch, half the rate", shown
    return ABSENT, "many tokens are clipped, by the usual range: do not widen it", shown


def _surge_before_rate(given: PipelineInput) -> Judged:
    """Return 4: responses surge and the learning rate was not cut: the reward is debugged too early."""
    history, surge = given.history, given.stands("length_surge")
    rate = next((history.find(name)[1] for name in LR_NAMES if history.has(name)), np.full(len(history), math.nan))
    shown = given.shown("response_length_mean", *LR_NAMES)
    if math.isnan(given.value("response_length_mean")):
        return UNKNOWN, "the lengths of responses were not sent", shown
    if surge is None:
        return ABSENT, "responses do not surge", shown
    before, now = _last_known(rate[history.steps <= surge.since.step]), _last_known(rate)
    if math.isnan(before) or math.isnan(now):
        return UNKNOWN, "responses surge; send the learning rate as scalar lr", shown
    if now < before:
        return ABSENT, "responses surge, and the learning rate was cut since", shown
    return PRESENT, "responses surge at an uncut learning rate: halve it before the reward", shown


def _averaged_difference(given: PipelineInput) -> Judged:
    """Return 5: the mean difference of probabilities looks normal while the engines are found to disagree."""
    mean = given.value("prob_diff_mean")
    shown = given.shown("prob_diff_mean", "prob_diff_max")
    if math.isnan(mean):
        return UNKNOWN, "the differences of probabilities were not measured", shown
    if given.stands("engine_mismatch") is None:
        return ABSENT, "no mismatch of the engines is found", shown
    if mean < NORMAL_PROB_DIFF_MEAN:
        return PRESENT, "the mean looks normal although the engines disagree: look at the largest differences", shown
    return ABSENT, "the mean shows the fault", shown


def _last_known(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else math.nan


def _rise(values: Array) -> float:
    """Return the mean of the newest 20 known values over that of the first 20; NaN with fewer than 40."""
    known = values[~np.isnan(values)]
    if len(known) < 2 * CHECKED_STEPS or not known[:CHECKED_STEPS].mean() > 0:
        return math.nan
    return float(known[-CHECKED_STEPS:].mean() / known[:CHECKED_STEPS].mean())


ANTI_PATTERNS = (
    ("KL read as learning before the engines were compared at the same weights", _kl_before_agreement),
    (
        "sequence-level importance weights with few effective samples and rising noise",
        _sequence_weights_without_samples,
    ),
    ("a clip range widened while many tokens are clipped", _widened_clip_range),
    ("a length surge debugged as a reward problem before the learning rate", _surge_before_rate),
    ("the largest probability difference averaged away", _averaged_difference),
)


def anti_patterns(given: PipelineInput) -> tuple[AntiPatternInfo, ...]:
    """Return all five, in the order of their source. Source: [DRIFT], anti-patterns; formulas, section 9."""
    judged = [(name, *judge(given)) for name, judge in ANTI_PATTERNS]
    return tuple(
        AntiPatternInfo(number=number, name=name, presence=presence, why=why, shown_by=shown_by)
        for number, (name, presence, why, shown_by) in enumerate(judged, 1)
    )


METHODS = {
    PipelineKind.SYNC_DENSE: (
        "Synchronous, dense",
        "PPO-clip with decoupled geometric rejection: policy geo_mask; verl's preset decoupled_geo_rs with 0.99_1.01. "
        "The geometric mean, never the sequence sum, which drops the longest responses.",
    ),
    PipelineKind.ASYNC: (
        "Asynchronous",
        "Bound the staleness, as a setting of yours and not of the algorithm, and scale the learning rate by the "
        "effective sample size (VCPO): trmon_client.advice.scale_lr. Decoupled, with a proximal policy.",
    ),
    PipelineKind.MOE: (
        "Mixture of experts",
        "Align the routing before any tuning of the loss: IcePop at once, replay of the rollout's routing (R3) or Keep "
        "Routing for production; log router_flip_rate.",
    ),
    PipelineKind.QUANTISED: (
        "Quantised rollout",
        "Treat the quantised policy as a behaviour policy of its own (QuRL, QaRL), not as a defect: keep the ratio to "
        "it in the loss, and judge its mismatch against the run's own start.",
    ),
}
KL_LIMIT, CHI2_LIMIT = HEALTHY["kl_k1"].most, HEALTHY["chi2_token"].most
NO_CORRECTION = (
    f"Below kl {KL_LIMIT:g} and chi2_token {CHI2_LIMIT:g} no correction may be needed: in the first few hundred steps, "
    "measure only."
)
CORRECTION = (
    "Correct: bypass saves a forward pass where the mismatch is small; decoupled where rollouts are used late or often."
)


def pipeline_advice(given: PipelineInput, off_policy: Sequence[OffPolicyKindInfo]) -> PipelineAdviceInfo:
    """Return the advice for a run. Source: [DRIFT], advice by pipeline; formulas, section 9."""
    methods = []
    for kind, shown_by in pipeline_kinds(given, off_policy).items():
        title, method = METHODS[kind]
        methods.append(PipelineMethodInfo(kind=kind, title=title, shown_by=shown_by, method=method))
    return PipelineAdviceInfo(
        methods=tuple(methods),
        correction=_correction(given),
        correction_shown_by=given.shown("kl_k1", "chi2_token"),
        anti_patterns=anti_patterns(given),
    )


def _correction(given: PipelineInput) -> str | None:
    lead = None if given.judgement is None else given.judgement.lead
    if lead is not None:
        return f"{lead.title[:1].upper()}{lead.title[1:]} since step {lead.since.step}: its remedy comes first."
    kl, chi2 = given.value("kl_k1"), given.value("chi2_token")
    if math.isnan(kl) or math.isnan(chi2):
        return None
    return NO_CORRECTION if abs(kl) < KL_LIMIT and chi2 < CHI2_LIMIT else CORRECTION
