"""Every finding: a run that has it, one that has it not, and one on its edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.domain.diagnosis.runs import HEALTHY, run, truth
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.finding import Finding, FindingForm
from trmon.domain.rules.condition import Truth

RISING = np.linspace(0.1, 0.4, 80)
STEADY = np.full(80, 0.3)
FLIPPED = {"router_flip_rate": 0.02, "router_flip_relative": 3.1}
DISORDER = {"entropy_relative": 1.3, "entropy_rise": 0.1}
REPLAYED = {"mismatch_kl_k1": 0.06, "router_replay": 1.0}

CASES: list[tuple[Finding, bool, str, dict[str, Any]]] = [
    (Finding.ENGINE_MISMATCH, True, "probabilities that hardly correlate", {"mismatch_prob_pearson": 0.94}),
    (Finding.ENGINE_MISMATCH, False, "at exactly 0.95", {"mismatch_prob_pearson": 0.95}),
    (Finding.ENGINE_MISMATCH, True, "a token whose probability is far off", {"mismatch_prob_diff_max": 0.51}),
    (Finding.ENGINE_MISMATCH, False, "at exactly 0.5", {"mismatch_prob_diff_max": 0.5}),
    (Finding.ENGINE_MISMATCH, True, "a perplexity 2% lower", {"mismatch_ppl_ratio": 0.98}),
    (Finding.ENGINE_MISMATCH, False, "at exactly 1%, above", {"mismatch_ppl_ratio": 1.01}),
    (Finding.ENGINE_MISMATCH, False, "at exactly 1%, below", {"mismatch_ppl_ratio": 0.99}),
    (Finding.ENGINE_MISMATCH, True, "a large KL", {"mismatch_kl_k1": 0.06}),
    (Finding.ENGINE_MISMATCH, False, "at exactly 0.05", {"mismatch_kl_k1": 0.05}),
    (Finding.ENGINE_MISMATCH, False, "at a lag it is staleness", {"mismatch_prob_pearson": 0.5, "engine_lag": 1}),
    (Finding.ENGINE_MISMATCH, False, "for two steps of five only", {"mismatch_prob_pearson": [0.5, 0.5]}),
    (Finding.ENGINE_MISMATCH, True, "for three steps of five", {"mismatch_prob_pearson": [0.5, 0.5, 0.5]}),
    (
        Finding.CORRUPT_LOGPROBS,
        True,
        "k3 beyond honest log-probs",
        {"mismatch_k3_excess": 1.1, "mismatch_ln_e_value": 14},
    ),
    (Finding.CORRUPT_LOGPROBS, False, "heavy tails that a sampler can have", {"mismatch_k3_excess": 1.1}),
    (Finding.CORRUPT_LOGPROBS, False, "at exactly ten times", {"mismatch_k3_excess": 1.0, "mismatch_ln_e_value": 14}),
    (Finding.CORRUPT_LOGPROBS, True, "padded tokens", {"saturated_fraction": 0.0011, "mu_zero_saturated_share": 0.9}),
    (
        Finding.CORRUPT_LOGPROBS,
        False,
        "at exactly 0.001",
        {"saturated_fraction": 0.001, "mu_zero_saturated_share": 0.9},
    ),
    (Finding.CORRUPT_LOGPROBS, False, "a confident sampler", {"saturated_fraction": 0.02}),
    (Finding.CORRUPT_LOGPROBS, True, "one step with many invalid tokens", {"invalid_fraction": [0.011, 0, 0, 0]}),
    (Finding.CORRUPT_LOGPROBS, False, "at exactly one percent", {"invalid_fraction": 0.01}),
    (Finding.CORRUPT_LOGPROBS, True, "shifted tokens", {"mismatch_ln_e_value": 25, "mismatch_prob_pearson": 0.1}),
    (Finding.CORRUPT_LOGPROBS, False, "another sampler", {"mismatch_ln_e_value": 25, "mismatch_prob_pearson": 0.6}),
    (Finding.CORRUPT_LOGPROBS, False, "engines far apart", {"mismatch_prob_pearson": 0.1}),
    (Finding.ENGINE_MISMATCH, False, "noise of a small batch", {"mismatch_ppl_ratio": 1.05, "mismatch_ppl_shift": 3.9}),
    (Finding.ENGINE_MISMATCH, True, "beyond its noise", {"mismatch_ppl_ratio": 0.95, "mismatch_ppl_shift": -4.1}),
    (Finding.ENGINE_MISMATCH, True, "noise unknown", {"mismatch_ppl_ratio": 0.95}),
    (Finding.CORRUPT_LOGPROBS, False, "no invalid token", {"invalid_fraction": 0.0}),
    (Finding.SUPPORT_SHIFT, True, "ratios below 1", {"mismatch_ratio_mean": 0.97, "mismatch_ratio_shift": -5}),
    (Finding.SUPPORT_SHIFT, True, "ratios above 1", {"mismatch_ratio_mean": 1.03, "mismatch_ratio_shift": 5}),
    (Finding.SUPPORT_SHIFT, True, "no spread at all", {"mismatch_ratio_mean": 0.9, "mismatch_ratio_shift": -np.inf}),
    (Finding.SUPPORT_SHIFT, False, "at exactly 0.02", {"mismatch_ratio_mean": 0.98, "mismatch_ratio_shift": -5}),
    (Finding.SUPPORT_SHIFT, False, "at exactly 4 errors", {"mismatch_ratio_mean": 0.9, "mismatch_ratio_shift": -4}),
    (Finding.SUPPORT_SHIFT, False, "noise of a small batch", {"mismatch_ratio_mean": 0.9, "mismatch_ratio_shift": -2}),
    (Finding.STALENESS, True, "a lag in the engines' pair", {"engine_lag": 4, "mismatch_kl_k3": 0.06}),
    (Finding.STALENESS, False, "at exactly 0.05", {"engine_lag": 4, "mismatch_kl_k3": 0.05}),
    (Finding.STALENESS, True, "by chi2", {"engine_lag": 4, "mismatch_chi2_token": 0.31}),
    (Finding.STALENESS, True, "by correlation", {"engine_lag": 4, "mismatch_prob_pearson": 0.9}),
    (Finding.STALENESS, False, "the same without a lag", {"mismatch_kl_k3": 0.06}),
    (Finding.STALENESS, True, "pi_old at the rollout's weights", {"version_lag_max": 6, "staleness_kl_k3": 0.06}),
    (Finding.STALENESS, False, "there, at exactly 0.05", {"version_lag_max": 6, "staleness_kl_k3": 0.05}),
    (
        Finding.STALENESS,
        False,
        "engines that differ are not clean",
        {"version_lag_max": 6, "staleness_kl_k3": 0.2, "mismatch_kl_k1": 0.06},
    ),
    (
        Finding.STALENESS,
        True,
        "staleness that grows with the lag",
        {"version_lag_max": [1] * 60 + [6] * 60, "staleness_kl_k3": [0.01] * 60 + [0.06] * 60},
    ),
    (
        Finding.STALENESS,
        False,
        "staleness that shrinks while the lag grows",
        {"version_lag_max": [1] * 60 + [6] * 60, "staleness_kl_k3": [0.2] * 60 + [0.06] * 60},
    ),
    (Finding.MODERATE_DRIFT, True, "chi2 above 0.3", {"mismatch_chi2_token": 0.31}),
    (Finding.MODERATE_DRIFT, False, "at exactly 0.3", {"mismatch_chi2_token": 0.3}),
    (Finding.MODERATE_DRIFT, True, "ess at exactly 0.5", {"mismatch_chi2_token": 0.9, "mismatch_ess_token": 0.5}),
    (Finding.MODERATE_DRIFT, False, "ess below it", {"mismatch_chi2_token": 0.9, "mismatch_ess_token": 0.49}),
    (Finding.VARIANCE_BLOWUP, True, "few tokens count", {"mismatch_ess_token": 0.49}),
    (Finding.VARIANCE_BLOWUP, False, "at exactly 0.5", {"mismatch_ess_token": 0.5}),
    (Finding.VARIANCE_BLOWUP, True, "chi2 above 1", {"mismatch_chi2_token": 1.1}),
    (Finding.VARIANCE_BLOWUP, False, "at exactly 1", {"mismatch_chi2_token": 1.0}),
    (Finding.VARIANCE_BLOWUP, True, "far below its start", {"ess_seq_relative": 0.29}),
    (Finding.VARIANCE_BLOWUP, False, "at exactly 0.3 of it", {"ess_seq_relative": 0.3}),
    (Finding.VARIANCE_BLOWUP, True, "gradients that vary more and more", {"grad_variance": np.linspace(1, 3, 80)}),
    (Finding.VARIANCE_BLOWUP, False, "gradients that vary as ever", {"grad_variance": np.full(80, 3.0)}),
    (Finding.CLIP_SATURATION, True, "clipping that rises past 0.2", {"clip_fraction": RISING}),
    (Finding.CLIP_SATURATION, False, "clipping that stays high", {"clip_fraction": STEADY}),
    (Finding.CLIP_SATURATION, False, "rising to exactly 0.2", {"clip_fraction": np.minimum(RISING, 0.2)}),
    (Finding.LENGTH_SURGE, True, "a fifth longer and more", {"response_length_growth": 1.21}),
    (Finding.LENGTH_SURGE, False, "at exactly a fifth", {"response_length_growth": 1.20}),
    (Finding.STEP_TOO_LARGE, True, "far within a step, twice in 20", {"staleness_kl_k3": [0.06, 0, 0, 0, 0.06, 0]}),
    (Finding.STEP_TOO_LARGE, False, "once in 20", {"staleness_kl_k3": [0.06, 0, 0, 0, 0, 0]}),
    (Finding.STEP_TOO_LARGE, False, "at exactly 0.05", {"staleness_kl_k3": 0.05}),
    (Finding.STEP_TOO_LARGE, False, "at a lag it is staleness", {"staleness_kl_k3": 0.2, "version_lag_max": 3}),
    (Finding.STEP_TOO_LARGE, True, "one spike of the gradient", {"grad_norm": [10.1, 1, 1, 1, 1]}),
    (Finding.STEP_TOO_LARGE, False, "at exactly ten times", {"grad_norm": [10.0, 1, 1, 1, 1]}),
    (Finding.NO_LEARNING_SIGNAL, True, "20 steps of equal rewards", {"zero_variance_groups": [0.95] * 24}),
    (Finding.NO_LEARNING_SIGNAL, False, "at exactly 0.9", {"zero_variance_groups": [0.9] * 24}),
    (Finding.NO_LEARNING_SIGNAL, False, "19 steps", {"zero_variance_groups": [0.95] * 19}),
    (Finding.MOE_ROUTING, True, "A with flips", {"mismatch_kl_k1": 0.06, **FLIPPED}),
    (
        Finding.MOE_ROUTING,
        False,
        "at exactly three times the first steps",
        {"mismatch_kl_k1": 0.06, "router_replay": 0, "router_flip_rate": 0.5, "router_flip_relative": 3.0},
    ),
    (
        Finding.MOE_ROUTING,
        True,
        "few flips, but four times those of the first steps",
        {"mismatch_kl_k1": 0.06, "router_flip_rate": 0.0004, "router_flip_relative": 4.0},
    ),
    (
        Finding.MOE_ROUTING,
        False,
        "beside a replay, few flips, though more than in the first steps",
        {**REPLAYED, "router_flip_rate": 0.0004, "router_flip_relative": 4.0},
    ),
    (Finding.MOE_ROUTING, True, "flips beside a replay", {**REPLAYED, "router_flip_rate": 0.0011}),
    (
        Finding.MOE_ROUTING,
        False,
        "beside a replay, at exactly 0.001",
        {**REPLAYED, "router_flip_rate": 0.001, "router_flip_relative": 1},
    ),
    (Finding.MOE_ROUTING, False, "flips that change nothing", {"router_flip_relative": 5}),
    (Finding.TEMPERATURE, True, "a slope", {"temperature_slope": -0.016, "temperature_corr": -0.26}),
    (Finding.TEMPERATURE, False, "at exactly 0.015", {"temperature_slope": 0.015, "temperature_corr": 0.3}),
    (Finding.TEMPERATURE, False, "a correlation of 0.25", {"temperature_slope": 0.1, "temperature_corr": 0.25}),
    (
        Finding.TEMPERATURE,
        False,
        "beside a shift of the support below 1",
        {
            "temperature_slope": -0.1,
            "temperature_corr": -0.5,
            "mismatch_ratio_mean": 0.9,
            "mismatch_ratio_shift": -9,
        },
    ),
    (Finding.NOT_A_NUMBER, True, "twice in 20 steps", {"nonfinite_steps": 2.0}),
    (Finding.NOT_A_NUMBER, False, "once", {"nonfinite_steps": 1.0}),
    (Finding.NOT_A_NUMBER, True, "once, and log-probs too", {"nonfinite_steps": 1.0, "invalid_fraction": 0.001}),
    (Finding.REWARD_COLLAPSE, True, "three steps running", {"reward_collapse": [1.1] * 3}),
    (Finding.REWARD_COLLAPSE, False, "two steps", {"reward_collapse": [1.1] * 2}),
    (Finding.REWARD_COLLAPSE, True, "a decline for 20 steps", {"reward_decline": [1.1] * 20}),
    (Finding.REWARD_COLLAPSE, False, "a decline for 19", {"reward_decline": [1.1] * 19}),
    (Finding.ENTROPY, True, "a fifth of the start, falling", {"entropy_relative": 0.19}),
    (Finding.ENTROPY, False, "at exactly a fifth", {"entropy_relative": 0.2}),
    (Finding.ENTROPY, False, "rising again", {"entropy_relative": 0.19, "entropy_rise": 0.01}),
    (Finding.ENTROPY, True, "rising while the reward falls", {**DISORDER, "reward_decline": 0.6}),
    (Finding.ENTROPY, False, "rising while the reward holds", {**DISORDER, "reward_decline": 0.4}),
    (Finding.ENTROPY, True, "three times the start, rising", {"entropy_relative": 3.1, "entropy_rise": 0.01}),
    (
        Finding.ENTROPY,
        False,
        "explained by two temperatures",
        {"entropy_relative": 0.1, "temperature_slope": 0.1, "temperature_corr": 0.5},
    ),
    (Finding.LENGTH, True, "less than half as long", {"response_length_relative": 0.49}),
    (Finding.LENGTH, False, "at exactly half", {"response_length_relative": 0.5}),
    (
        Finding.LENGTH,
        True,
        "rewards that follow a growing length",
        {"reward_length_corr_ema": 0.51, "response_length_growth": 1.21},
    ),
    (Finding.LENGTH, True, "more and more are cut", {"length_limit_ema": 0.21, "length_limit_rise": 0.01}),
    (Finding.LENGTH, False, "as many cut as ever", {"length_limit_ema": 0.9, "length_limit_rise": 0.0}),
    (Finding.VERSION_SPAN, True, "a span that grows", {"version_span_max": 2, "version_span_rise": 0.1}),
    (Finding.VERSION_SPAN, False, "at a span of 1", {"version_span_max": 1, "version_span_rise": 0.1}),
    (Finding.VERSION_SPAN, False, "a span as ever", {"version_span_max": 4, "version_span_rise": 0.0}),
    (
        Finding.VARIANCE_BLOWUP,
        True,
        "drift far above the start",
        {"kl_k3_relative": 21, "kl_k3_ema": 0.51},
    ),
    (Finding.VARIANCE_BLOWUP, False, "much, but as at the start", {"kl_k3_relative": 1.2, "kl_k3_ema": 0.9}),
    (Finding.NO_LEARNING_SIGNAL, True, "groups that differ half as much", {"effective_signal_relative": [0.49] * 20}),
    (Finding.NO_LEARNING_SIGNAL, False, "for 19 steps", {"effective_signal_relative": [0.49] * 19}),
]


@pytest.mark.parametrize(
    ("finding", "holds", "changed"),
    [pytest.param(f, holds, changed, id=f"{f.value} {holds}: {why}") for f, holds, why, changed in CASES],
)
def test_a_finding_holds_where_its_rule_says_so(finding: Finding, holds: bool, changed: dict[str, Any]) -> None:
    found = diagnose(run(**changed))
    assert truth(finding, found) is (Truth.TRUE if holds else Truth.FALSE)


def test_every_finding_has_both_cases() -> None:
    of_one_kind = {(finding, holds) for finding, holds, _, _ in CASES}
    rules = set(Finding) - {Finding.HEALTHY, Finding.UNKNOWN}
    assert of_one_kind == {(finding, holds) for finding in rules for holds in (True, False)}


@pytest.mark.parametrize(
    ("n_updates", "finding"),
    [
        pytest.param(4, Finding.STEP_TOO_LARGE, id="four updates went far: the steps are large"),
        pytest.param(64, Finding.STALENESS, id="only after many updates did it go far: the rollout is used too long"),
    ],
)
def test_drift_within_a_step_is_told_by_how_soon_it_comes(n_updates: int, finding: Finding) -> None:
    steps, updates = 30, np.arange(-1, n_updates)
    drift = 0.06 * np.maximum(updates, 0) / (n_updates - 1)
    values = {name: np.full(steps * len(updates), value) for name, value in HEALTHY.items()}
    values["staleness_kl_k3"] = np.tile(drift, steps)
    history = History.of_rows(
        step=np.repeat(np.arange(steps), len(updates)), update=np.tile(updates, steps), values=values
    )
    assert diagnose(history).primary is finding


def test_usual_values_that_exclude_another_cause_are_told_from_limits() -> None:
    [observation] = [one for one in diagnose(run(mismatch_prob_pearson=0.9)).observed if one.evidence]
    assert {item.signal: item.rules_out for item in observation.evidence} == {
        "engine_lag": True,
        "mismatch_prob_pearson": False,
    }


def test_every_finding_means_something_in_a_sentence() -> None:
    sentences = {finding: finding.meaning for finding in Finding}
    assert {finding for finding, meaning in sentences.items() if meaning is None} == {Finding.HEALTHY, Finding.UNKNOWN}
    assert all(meaning.endswith(".") for meaning in sentences.values() if meaning is not None)


@pytest.mark.parametrize(
    ("form", "changed"),
    [
        (FindingForm.ENTROPY_COLLAPSE, {"entropy_relative": 0.19}),
        (FindingForm.ENTROPY_EXPLOSION, {"entropy_relative": 3.1, "entropy_rise": 0.01}),
        (FindingForm.ENTROPY_EXPLOSION, {**DISORDER, "reward_decline": 0.6}),
    ],
)
def test_an_entropy_out_of_range_says_on_which_side(form: FindingForm, changed: dict[str, Any]) -> None:
    found = diagnose(run(**changed))
    assert (found.primary, found.form, found.observed[0].form) == (Finding.ENTROPY, form, form)
    assert found.remedy is remedy_of(Finding.ENTROPY, form)


def test_a_finding_without_forms_has_none() -> None:
    assert diagnose(run(response_length_relative=0.4)).form is None


def test_of_several_limits_of_a_signal_the_one_that_it_broke_first_is_evidence() -> None:
    rising = np.concatenate([np.ones(40), np.full(20, 1.5), np.full(20, 3.5)])
    found = diagnose(run(entropy_relative=rising, entropy_rise=0.1, reward_decline=0.6))
    [entropy] = [one for one in found.observed if one.finding is Finding.ENTROPY]
    limits = [(item.threshold, item.since_step) for item in entropy.evidence if item.signal == "entropy_relative"]
    assert limits == [(1.2, 80)]
