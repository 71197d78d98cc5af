"""All built-in rules, from rows to alerts: when they fire, and when they do not."""

from __future__ import annotations

import math

import pytest

from tests.domain.ruleruns import QUIET_STEPS, Numbers, RuleRun, of, run
from trmon.domain.rules.rule_yaml import builtin_rules

RULES = {rule.name: rule for rule in builtin_rules()}


WITHOUT_IMMUNITY = {rule.name for rule in builtin_rules() if not rule.immune_steps}
LAG = {"engine_lag": 2.0}
UNLIKELY = {"mismatch_ln_e_value": 14.0}
CASES: tuple[tuple[str, str, float, float, Numbers], ...] = (
    ("corrupt_logprobs", "mismatch_k3_excess", 1.01, 1.0, UNLIKELY),
    ("corrupt_logprobs", "mismatch_prob_pearson", 0.49, 0.5, UNLIKELY),
    ("corrupt_logprobs", "mismatch_ln_e_value", 13.82, 13.81, {"mismatch_k3_excess": 2.0}),
    ("corrupt_logprobs", "saturated_fraction", 0.0011, 0.001, {"mu_zero_saturated_share": 1.0}),
    ("corrupt_logprobs", "mu_zero_saturated_share", 0.51, 0.5, {"saturated_fraction": 0.01}),
    ("corrupt_logprobs", "invalid_fraction", 0.011, 0.01, {}),
    ("invalid_logprobs", "invalid_fraction", 1 / 1001, 0.0, {}),
    ("moe_routing", "router_flip_rate", 0.02, 0.0011, {"mismatch_prob_pearson": 0.94}),
    ("engine_mismatch", "mismatch_prob_pearson", 0.9499, 0.95, {}),
    ("engine_mismatch", "mismatch_prob_diff_max", 0.5625, 0.5, {}),
    ("engine_mismatch", "mismatch_ppl_ratio", 0.989, 1.01 - 1e-12, {"mismatch_ppl_shift": -4.1}),
    ("engine_mismatch", "mismatch_kl_k1", 0.051, 0.05, {}),
    ("support_shift", "mismatch_ratio_shift", -4.1, -4.0, {"mismatch_ratio_mean": 0.97}),
    ("support_shift", "mismatch_ratio_mean", 1.021, 1.02 - 1e-12, {"mismatch_ratio_shift": 5.0}),
    ("stale_rollouts", "mismatch_kl_k3", 0.051, 0.05, LAG),
    ("stale_rollouts", "mismatch_chi2_token", 0.31, 0.3, LAG),
    ("stale_updates", "staleness_kl_k3", 0.051, 0.05, {"staleness_lag": 1.0}),
    ("step_too_large", "staleness_kl_k3", 0.051, 0.05, {}),
    ("gradient_spike", "grad_norm", 10.01, 10.0, {}),
    ("variance_blowup", "mismatch_ess_token", 0.49, 0.5, {}),
    ("variance_blowup", "mismatch_chi2_token", 1.01, 1.0, {}),
    ("sequence_ess_drop", "ess_seq_relative", 0.29, 0.3, {}),
    ("gradient_variance", "grad_variance", 2.01, 2.0, {}),
    ("moderate_drift", "mismatch_chi2_token", 0.31, 0.3, {}),
    ("clip_saturation", "clip_fraction", 0.21, 0.2, {}),
    ("length_surge", "response_length_mean", 61.0, 60.0, {}),
    ("no_learning_signal", "zero_variance_groups", 0.91, 0.9, {}),
    ("mask_rate", "mask_rate", 0.51, 0.5, {}),
    ("length_biased_masking", "mask_rate_long", 0.41, 0.4, {"mask_rate": 0.2, "mask_rate_short": 0.2}),
    ("vacuous_bound", "bound_vacuous", 1.0, 0.0, {}),
    ("incomplete_ranks", "missing_ranks", 1.0, 0.0, {}),
    ("incomplete_ranks", "incomplete", 1.0, 0.0, {}),
    ("decision_mismatch", "decision_mismatches", 1.0, 0.0, {}),
)
"""A rule, a signal that it reads, a value just beyond its threshold, one exactly at it, and what stands beside it."""

DELAYS = {"gradient_spike": 1, "stale_updates": 1, "step_too_large": 1, "moe_routing": 2, "length_surge": 2}
DELAYS |= {"gradient_variance": 3, "clip_saturation": 3}
"""How many steps after its `for_steps` a rule fires that reads more than one step."""

NOT_FOR: tuple[tuple[str, str, Numbers], ...] = (
    ("corrupt_logprobs", "a sampler can have heavy tails", {"mismatch_k3_excess": 5.0}),
    ("corrupt_logprobs", "extreme ratios alone are no proof", {"clamped_fraction": 0.5}),
    ("corrupt_logprobs", "a confident sampler", {"saturated_fraction": 0.1, "mu_zero_saturated_share": 0.2}),
    ("invalid_logprobs", "a batch without a token has no value", {"invalid_fraction": math.nan}),
    ("moe_routing", "experts flip, yet the engines agree", {"router_flip_rate": 0.02}),
    ("engine_mismatch", "weights moved in between: stale, not different", {**LAG, "mismatch_prob_pearson": 0.5}),
    ("engine_mismatch", "an unknown lag is no evidence", {"engine_lag": math.nan, "mismatch_prob_diff_max": 0.875}),
    ("engine_mismatch", "noise of a small batch", {"mismatch_ppl_ratio": 0.9, "mismatch_ppl_shift": -4.0}),
    ("engine_mismatch", "below zero is noise, or support_shift's", {"mismatch_kl_k1": -0.06}),
    ("support_shift", "significant, and of no size", {"mismatch_ratio_shift": 40.0, "mismatch_ratio_mean": 1.001}),
    ("stale_rollouts", "a lag that harms nothing", LAG),
    (
        "stale_updates",
        "the engines disagree: look there first",
        {"staleness_lag": 1.0, "staleness_kl_k3": 0.2, "mismatch_prob_pearson": 0.5},
    ),
    ("step_too_large", "a lag explains it", {"staleness_lag": 2.0, "staleness_kl_k3": 0.2}),
    ("gradient_spike", "gradients vary", {"grad_norm": 5.0}),
    ("variance_blowup", "truncated weights hide outliers, or make them up", {"mismatch_ess_truncated": 0.1}),
    ("variance_blowup", "an unknown variance is not a large one", {"mismatch_chi2_token": math.nan}),
    ("sequence_ess_drop", "far below its start, but not that far", {"mismatch_ess_seq": 0.31}),
    ("gradient_variance", "it falls", {"grad_variance": 0.1}),
    ("moderate_drift", "no longer moderate", {"mismatch_chi2_token": 0.9, "mismatch_ess_token": 0.4}),
    ("clip_saturation", "it rises, from little to little", {"clip_fraction": 0.15}),
    ("length_surge", "responses shrink", {"response_length_mean": 25.0}),
    ("no_learning_signal", "the rule reads groups, not the batch", {"reward_std": 0.0}),
    ("mask_rate", "a shadow rejects, but nothing is masked", {"mask_rate:geo_mask": 0.9}),
    ("length_biased_masking", "too few are rejected to tell", {"mask_rate": 0.05, "mask_rate_long": 0.2}),
    ("vacuous_bound", "without logits the bound is unknown", {"bound_vacuous": math.nan}),
    ("incomplete_ranks", "all ranks are present, with different policies", {"policy_versions": 2.0}),
    ("incomplete_ranks", "slow is not incomplete", {"step_seconds": 1e5}),
    ("decision_mismatch", "another policy is not another decision", {"policy_versions": 2.0}),
)


def _slopes(slope: float) -> Numbers:
    of_both = dict.fromkeys(("mismatch_logp_slope_q", "mismatch_logp_slope_p"), slope)
    return {**of_both, "mismatch_logp_corr_q": -0.5, "mismatch_kl_k2": 0.01}


LONG_PAYS = {"reward_length_corr": 1.0}
SHOWS_HISTORY: tuple[tuple[str, Numbers, Numbers, Numbers], ...] = (
    ("not_a_number", {"loss": 0.5}, {"loss": math.nan}, {"loss": 50.0}),
    ("reward_collapse", {}, {"reward_mean": 0.0}, {"reward_mean": 0.3}),
    ("reward_decline", {}, {"reward_mean": 0.3}, {"reward_mean": 0.35}),
    ("drift_growing", {"mismatch_kl_k3": 0.01}, {"mismatch_kl_k3": 2.0}, {"mismatch_kl_k3": 0.4}),
    ("entropy_collapse", {"entropy": 1.0}, {"entropy": 0.1}, {"entropy": 0.3}),
    ("entropy_explosion", {"entropy": 1.0}, {"entropy": 5.0}, {"entropy": 2.9}),
    ("length_hacking", LONG_PAYS, {**LONG_PAYS, "response_length_mean": 65.0}, LONG_PAYS),
    ("length_limit", {"length_limit_share": 0.1}, {"length_limit_share": 0.6}, {"length_limit_share": 0.15}),
    ("version_span", {"version_span_max": 0.0}, {"version_span_max": 3.0}, {"version_span_max": 1.0}),
    ("weak_learning_signal", {}, {"effective_signal": 0.1}, {"effective_signal": 0.3}),
    ("temperature", {}, _slopes(-0.1), _slopes(0.01)),
    ("sampler_mismatch", {}, UNLIKELY, {"mismatch_ln_e_value": 13.8}),
    ("length_collapse", {}, {"response_length_mean": 20.0}, {"response_length_mean": 30.0}),
)
"""Rules over the history of a run: the usual numbers, numbers that raise it, and numbers that do not."""


@pytest.mark.parametrize(("rule", "usual", "ill", "well"), SHOWS_HISTORY, ids=[rule for rule, *_ in SHOWS_HISTORY])
def test_a_rule_over_history_fires_once_and_resolves(rule: str, usual: Numbers, ill: Numbers, well: Numbers) -> None:
    spoiled = run(ill, steps=80, after=120, usual=usual)
    assert [state for _, state, _ in of(spoiled.events, rule)] == ["firing", "resolved"]
    assert of(run(well, steps=80, usual=usual).events, rule) == []


IDS = [f"{rule}: {signal}" for rule, signal, *_ in CASES]


@pytest.mark.parametrize(("rule", "signal", "beyond", "at", "beside"), CASES, ids=IDS)
def test_a_rule_fires_after_enough_steps_beyond_its_threshold_and_resolves_when_the_run_is_healthy(
    rule: str, signal: str, beyond: float, at: float, beside: Numbers
) -> None:
    known, ill = RULES[rule], {**beside, signal: beyond}
    long_enough = known.for_steps + DELAYS.get(rule, 0)
    ran = run(ill, steps=long_enough - 1)
    assert of(ran.events, rule) == []
    # A rule that waits for the end of a step fires for the step before the one that ended it.
    waits = known.reads_scalars or known.reads.value == "every_update"
    fired = (rule, "firing", QUIET_STEPS + long_enough - 1 - waits)
    assert of(ran.make_steps(ill).events, rule) == [fired]
    healed = ran.make_steps({}, steps=known.clear_for_steps + 8)
    assert [state for _, state, _ in of(healed.events, rule)] == ["firing", "resolved"]
    assert of(run({**beside, signal: at}, steps=2 * known.for_steps + 5).events, rule) == [], "at the threshold"


@pytest.mark.parametrize(("rule", "why", "numbers"), NOT_FOR, ids=[f"{rule}: {why}" for rule, why, _ in NOT_FOR])
def test_a_rule_does_not_fire_for_similar_numbers(rule: str, why: str, numbers: Numbers) -> None:
    assert of(run(numbers, steps=2 * RULES[rule].for_steps + 5).events, rule) == []


@pytest.mark.parametrize(
    ("per_step", "at_last", "states"),
    [
        pytest.param(200_000.0, 0.0, ["firing", "resolved"], id="more waits each step; it drains"),
        pytest.param(0.0, 0.0, [], id="as much waits as ever"),
        pytest.param(10_000.0, 0.0, [], id="it grows, to less than a megabyte"),
    ],
)
def test_a_growing_spool_raises_an_alert(per_step: float, at_last: float, states: list[str]) -> None:
    spooling = RuleRun().make_steps({}, steps=40)
    for step in range(30):
        spooling.make_steps({"client_spooled_bytes": per_step * step})
    spooling.make_steps({"client_spooled_bytes": at_last}, steps=30)
    assert [state for _, state, _ in of(spooling.events, "spool_growing")] == states


@pytest.mark.parametrize(("rule", "signal", "beyond", "at", "beside"), CASES, ids=IDS)
def test_only_rules_without_immune_steps_fire_in_the_first_steps(
    rule: str, signal: str, beyond: float, at: float, beside: Numbers
) -> None:
    fired = {rule for rule, _, _ in RuleRun().make_steps({**beside, signal: beyond}, steps=20).events}
    assert fired <= WITHOUT_IMMUNITY
    assert fired >= WITHOUT_IMMUNITY & {rule}


def test_a_healthy_run_raises_nothing() -> None:
    assert RuleRun().make_steps({}, steps=2 * QUIET_STEPS).events == []


def test_every_builtin_rule_over_signals_has_a_case() -> None:
    over_signals = {name for name, rule in RULES.items() if rule.reads_batches and not rule.is_prediction}
    elsewhere = {"spool_growing", "batch_quarantined"} | {rule for rule, *_ in SHOWS_HISTORY}
    assert over_signals == {rule for rule, *_ in CASES} | elsewhere
