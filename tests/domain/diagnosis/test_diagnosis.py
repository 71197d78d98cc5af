"""The diagnosis as a whole: the cause first, what is not known said so, and healthy only where everything is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.domain.diagnosis.runs import HEALTHY, of_dict, run, truth
from trmon.domain.diagnosis.criteria import Thresholds
from trmon.domain.diagnosis.diagnosis import Quadrant, Stage, TemperatureRatio, diagnose, temperature_ratio
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding
from trmon.domain.rules.condition import ThresholdSide, Truth


def test_a_healthy_run_is_healthy_and_needs_nothing() -> None:
    found = diagnose(run())
    assert found.primary is Finding.HEALTHY
    assert (found.observed, found.unknown, found.shortfall, found.remedy) == ((), (), (), None)
    assert (found.quadrant, found.escalation.stage) == (Quadrant.ON_POLICY, Stage.REJECTION)


def test_the_noise_of_a_small_batch_does_not_keep_a_run_from_being_healthy() -> None:
    assert diagnose(run(mismatch_ppl_ratio=1.2, mismatch_ppl_shift=2.0)).primary is Finding.HEALTHY
    assert diagnose(run(mismatch_ppl_ratio=1.2, mismatch_ppl_shift=20.0)).primary is Finding.ENGINE_MISMATCH


FLIPPED = {"router_flip_rate": 0.02, "router_flip_relative": 4.0}
PADDED = {"saturated_fraction": 0.3, "mu_zero_saturated_share": 0.9}
NEEDED = (
    *("mismatch_prob_pearson", "mismatch_prob_diff_max", "mismatch_ppl_ratio", "mismatch_kl_k1"),
    *("invalid_fraction", "mismatch_chi2_token", "mismatch_ess_token", "ess_seq_relative"),
    *("staleness_kl_k3", "clip_fraction", "response_length_growth", "grad_norm", "zero_variance_groups"),
    *("reward_collapse", "entropy_relative", "response_length_relative", "nonfinite_steps"),
)


@pytest.mark.parametrize("signal", NEEDED)
def test_a_run_is_never_healthy_while_a_signal_is_missing(signal: str) -> None:
    found = diagnose(run(without=(signal,)))
    assert found.primary is Finding.UNKNOWN
    assert found.missing or found.unknown


@pytest.mark.parametrize("signal", NEEDED)
def test_a_run_is_never_healthy_while_a_signal_is_nan(signal: str) -> None:
    assert diagnose(run(**{signal: np.nan})).primary is Finding.UNKNOWN


@pytest.mark.parametrize(
    "lost", [("mismatch_ratio_mean", "mismatch_ratio_shift"), ("temperature_slope", "temperature_corr")]
)
def test_of_two_signals_that_each_can_rule_a_finding_out_one_suffices(lost: tuple[str, str]) -> None:
    assert diagnose(run(without=lost[:1])).primary is Finding.HEALTHY
    assert diagnose(run(without=lost[1:])).primary is Finding.HEALTHY
    assert diagnose(run(without=lost)).primary is Finding.UNKNOWN


@pytest.mark.parametrize(
    ("signal", "argument"),
    [
        ("mismatch_prob_pearson", "rollout_logprobs and old_logprobs"),
        ("staleness_kl_k3", "old_logprobs and logprobs"),
        ("clip_fraction", "advantages"),
        ("grad_norm", "grad_norm"),
        ("zero_variance_groups", "group_ids"),
        ("ess_seq_relative", "first 20 steps"),
        ("response_length_growth", "105 steps"),
        ("reward_decline", "40 steps"),
        ("effective_signal_relative", "40 steps"),
    ],
)
def test_what_is_missing_names_the_argument_that_gives_it(signal: str, argument: str) -> None:
    missing = diagnose(run(without=(signal,))).missing
    assert any(argument in gap.provide for gap in missing), missing


def test_without_an_e_value_k3_alone_rules_corrupt_log_probs_out() -> None:
    assert diagnose(run(without=("mismatch_ln_e_value",))).primary is Finding.HEALTHY
    lost = ("mismatch_ln_e_value", "mismatch_k3_excess", "mismatch_kl_k3")
    assert diagnose(run(without=lost)).primary is Finding.UNKNOWN


def test_a_young_run_is_not_called_healthy() -> None:
    young = run(10, without=("ess_seq_relative", "response_length_growth"))
    found = diagnose(young)
    assert found.primary is Finding.UNKNOWN
    assert {lost.finding for lost in found.unknown} == {
        *(Finding.VARIANCE_BLOWUP, Finding.STEP_TOO_LARGE, Finding.LENGTH_SURGE, Finding.NO_LEARNING_SIGNAL)
    }


def test_between_healthy_and_ill_is_neither() -> None:
    found = diagnose(run(mismatch_prob_pearson=0.97))
    assert (found.primary, found.observed, found.unknown) == (Finding.UNKNOWN, (), ())
    assert [(item.signal, item.threshold) for item in found.shortfall] == [("mismatch_prob_pearson", 0.99)]


CAUSES = [
    (
        "padding makes engines look different",
        {**PADDED, "mismatch_prob_pearson": 0.6, "mismatch_band_fraction": 0.02},
        Finding.CORRUPT_LOGPROBS,
        {Finding.ENGINE_MISMATCH},
    ),
    (
        "a nucleus saturates tokens whose ratios stay near 1",
        {**PADDED, "mismatch_prob_pearson": 0.8, "mismatch_ratio_mean": 0.96, "mismatch_ratio_shift": -17},
        Finding.SUPPORT_SHIFT,
        {Finding.ENGINE_MISMATCH},
    ),
    (
        "padding shifts the mean ratio too, but by tokens far out",
        {**PADDED, "mismatch_ratio_mean": 0.96, "mismatch_ratio_shift": -8, "mismatch_band_fraction": 0.02},
        Finding.CORRUPT_LOGPROBS,
        {Finding.SUPPORT_SHIFT},
    ),
    (
        "weights that blow up are a symptom of the lag",
        {"engine_lag": 16, "mismatch_prob_pearson": 0.4, "mismatch_chi2_token": 2, "mismatch_ess_token": 0.3},
        Finding.STALENESS,
        {Finding.VARIANCE_BLOWUP},
    ),
    (
        "flips explain engines that differ",
        {"mismatch_kl_k1": 0.3, **FLIPPED, "mismatch_chi2_token": 0.4},
        Finding.MOE_ROUTING,
        {Finding.ENGINE_MISMATCH, Finding.MODERATE_DRIFT},
    ),
]


@pytest.mark.parametrize(
    ("changed", "primary", "beside"), [pytest.param(*case, id=sentence) for sentence, *case in CAUSES]
)
def test_the_cause_comes_first_and_its_symptoms_beside_it(
    changed: dict[str, Any], primary: Finding, beside: set[Finding]
) -> None:
    found = diagnose(run(**changed))
    assert found.primary is primary
    assert {seen.finding for seen in found.observed[1:]} == beside
    assert found.remedy is not None


def test_evidence_says_the_value_the_threshold_and_since_when() -> None:
    found = diagnose(run(mismatch_prob_pearson=[0.9, 0.999, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]))
    [evidence] = [item for item in found.observed[0].evidence if item.signal == "mismatch_prob_pearson"]
    assert (evidence.value, evidence.bound, evidence.threshold) == (0.4, ThresholdSide.BELOW, 0.95)
    assert evidence.since_step == found.observed[0].since_step == 112


def test_without_flips_m_is_unknown_beside_a() -> None:
    found = diagnose(run(mismatch_kl_k1=0.3))
    assert found.primary is Finding.ENGINE_MISMATCH
    assert truth(Finding.MOE_ROUTING, found) is Truth.UNKNOWN
    assert any("router_flip_rate" in gap.provide for gap in found.missing)


def test_ratios_too_heavy_tailed_to_average_leave_the_support_unknown() -> None:
    found = diagnose(run(mismatch_kl_k1=2.0, mismatch_ratio_mean=0.6, mismatch_ratio_shift=np.nan))
    assert found.primary is Finding.ENGINE_MISMATCH
    [lost] = [lost for lost in found.unknown if lost.finding is Finding.SUPPORT_SHIFT]
    assert "heavy-tailed" in lost.missing[0].provide


def test_rewards_that_are_all_equal_are_not_asked_for_again() -> None:
    found = diagnose(run(reward_length_corr_ema=np.nan, response_length_growth=1.5))
    [gap] = [gap for gap in found.missing if gap.signal == "reward_length_corr_ema"]
    assert gap.provide == "rewards or lengths that are equal in every step have no correlation"


def test_what_was_seen_once_among_unknown_values_is_unknown() -> None:
    once = run(mismatch_ratio_mean=0.9, mismatch_ratio_shift=[np.nan, np.nan, np.nan, np.nan, -9.0])
    assert truth(Finding.SUPPORT_SHIFT, diagnose(once)) is Truth.UNKNOWN


def test_every_threshold_is_configuration() -> None:
    lenient = Thresholds(kl_ill=1.0, ppl_ratio=2.0, kl_healthy=1.0)
    assert diagnose(run(mismatch_kl_k1=0.3), limits=lenient).primary is Finding.HEALTHY


@pytest.mark.parametrize(
    ("tv", "chi2", "quadrant"),
    [
        (0.01, 0.3, Quadrant.ON_POLICY),
        (0.011, 0.3, Quadrant.EVEN_DRIFT),
        (0.01, 0.31, Quadrant.HEAVY_TAIL),
        (0.011, 0.31, Quadrant.BOTH),
        (np.nan, 0.31, Quadrant.UNKNOWN),
    ],
)
def test_the_quadrant_is_tv_beside_chi2(tv: float, chi2: float, quadrant: Quadrant) -> None:
    assert diagnose(run(mismatch_tv=tv, mismatch_chi2_token=chi2)).quadrant is quadrant


@pytest.mark.parametrize(
    ("changed", "stage"),
    [
        ({"mismatch_chi2_token": 1.99, "mask_rate:geo_mask": 0.099}, Stage.REJECTION),
        ({"mismatch_chi2_token": 2.0}, Stage.REJECTION_AND_WEIGHTS),
        ({"mask_rate:geo_mask": 0.10}, Stage.REJECTION_AND_WEIGHTS),
        ({"mismatch_chi2_token": 4.0, "mask_rate:geo_mask": 0.25}, Stage.REJECTION_AND_WEIGHTS),
        ({"mismatch_chi2_token": 4.1}, Stage.SYSTEM_FIX),
        ({"mask_rate:geo_mask": 0.26}, Stage.SYSTEM_FIX),
        ({"mismatch_band_fraction": 0.11}, Stage.SYSTEM_FIX),
        ({"mismatch_prob_pearson": 0.94}, Stage.SYSTEM_FIX),
        ({"mask_rate:geo_mask": np.nan}, Stage.UNKNOWN),
    ],
)
def test_the_stage_is_how_far_correction_can_go(changed: dict[str, Any], stage: Stage) -> None:
    escalation = diagnose(run(**changed)).escalation
    assert escalation.stage is stage
    assert bool(escalation.missing) is (stage is Stage.UNKNOWN)


def test_one_step_alone_is_judged_as_far_as_it_goes() -> None:
    found = of_dict({**HEALTHY, "mismatch_prob_pearson": 0.5})
    assert found.primary is Finding.ENGINE_MISMATCH
    needs_a_past = {lost.finding for lost in found.unknown} - {Finding.MOE_ROUTING}
    assert needs_a_past == {Finding.STEP_TOO_LARGE, Finding.NO_LEARNING_SIGNAL}
    assert of_dict(HEALTHY).primary is Finding.UNKNOWN


def test_nothing_known_is_unknown_in_everything() -> None:
    found = of_dict({})
    assert found.primary is Finding.UNKNOWN
    assert found.quadrant is Quadrant.UNKNOWN
    assert len(found.unknown) >= 10


def test_a_lag_named_without_old_version_lies_in_the_engines_pair() -> None:
    found = of_dict({"kl_k3": 0.4, "version_lag_max": 3})
    assert found.primary is Finding.STALENESS


@pytest.mark.parametrize(
    ("equal_from", "first"),
    [
        pytest.param(60, Finding.REWARD_COLLAPSE, id="equal rewards after the collapse are its consequence"),
        pytest.param(0, Finding.NO_LEARNING_SIGNAL, id="equal rewards before it are its cause"),
    ],
)
def test_equal_rewards_lead_only_if_they_came_first(equal_from: int, first: Finding) -> None:
    steps = np.arange(100)
    found = diagnose(
        History(
            steps,
            {
                "reward_collapse": np.where(steps >= 50, 2.0, 0.1),
                "zero_variance_groups": np.where(steps >= equal_from, 0.95, 0.2),
            },
        )
    )
    assert {seen.finding for seen in found.observed} == {Finding.REWARD_COLLAPSE, Finding.NO_LEARNING_SIGNAL}
    assert found.primary is first


def history(n: int = 30, **changed: float) -> History:
    signals = {
        "mismatch_kl_k3": 0.01,
        "mismatch_temperature_near": 0.95,
        "mismatch_temperature_far": 0.88,
        "temperature_slope": -0.05,
        "temperature_corr": 0.6,
    }
    return History(np.arange(n), {name: np.full(n, value) for name, value in (signals | changed).items()})


def test_the_ratio_is_between_its_ends() -> None:
    assert temperature_ratio(history()) == TemperatureRatio(0.88, 0.95)
    assert temperature_ratio(history(mismatch_temperature_near=1.05, mismatch_temperature_far=1.2)) == TemperatureRatio(
        1.05, 1.2
    )


@pytest.mark.parametrize("far", [math.nan, math.inf, -0.3, 0.0])
def test_a_ratio_that_cannot_be_is_not_told(far: float) -> None:
    assert temperature_ratio(history(mismatch_temperature_far=far)) is None


def test_the_remedy_names_both_temperatures_where_the_sampling_one_is_known() -> None:
    found = diagnose(history())
    assert found.primary is Finding.TEMPERATURE
    rendered = found.rendered_remedy({"temperature": 0.9})
    assert "samples at 0.9 as configured; the trainer's log-probs are of 0.95 to 1.02" in rendered.fix
    assert rendered.trl["temperature"] == "0.9"
    without = found.rendered_remedy()
    assert "0.88 to 0.95 times" in without.fix
