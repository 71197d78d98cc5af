"""All built-in rules, from rows to alerts: when they fire, and when they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from tests.domain.ruleruns import QUIET_STEPS, Numbers, RuleRun, of, run
from trmon.domain.rules.rule_yaml import builtin_rules

RULES = {rule.name: rule for rule in builtin_rules()}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rule: numbers just beyond its thresholds, exactly at them, and others for which it must not fire.

    `delay` is how many steps after its `for_steps` it fires, if it reads more than one step; `usual` are the numbers of
    the negative run before.
    """

    rule: str
    beyond: Numbers
    at: Numbers
    negative: Numbers
    why: str
    delay: int = 0
    usual: Numbers = field(default_factory=dict)


WITHOUT_IMMUNITY = {rule.name for rule in builtin_rules() if not rule.immune_steps}
LAG = {"engine_lag": 2.0}
UNLIKELY = {"mismatch_ln_e_value": 14.0}
FLIPS = {"router_flip_rate": 0.02}
CASES = (
    Case(
        rule="corrupt_logprobs",
        beyond={"mismatch_k3_excess": 1.01, **UNLIKELY},
        at={"mismatch_k3_excess": 1.0, **UNLIKELY},
        negative={"mismatch_k3_excess": 5.0},
        why="a sampler can have heavy tails",
    ),
    Case(
        rule="corrupt_logprobs",
        beyond={"saturated_fraction": 0.002, "mu_zero_saturated_share": 1.0},
        at={"saturated_fraction": 0.01, "mu_zero_saturated_share": 0.5},
        negative={"clamped_fraction": 0.5},
        why="extreme ratios alone are no proof",
    ),
    Case(
        rule="invalid_logprobs",
        beyond={"invalid_fraction": 1 / 1001},
        at={"invalid_fraction": 0.0},
        negative={"invalid_fraction": math.nan},
        why="a batch without a token has no value",
    ),
    Case(
        rule="corrupt_logprobs",
        beyond={"invalid_fraction": 0.011},
        at={"invalid_fraction": 0.01},
        negative={"saturated_fraction": 0.1, "mu_zero_saturated_share": 0.2},
        why="a confident sampler",
    ),
    Case(
        rule="moe_routing",
        beyond={**FLIPS, "mismatch_prob_pearson": 0.94},
        at={"router_flip_rate": 0.0011, "mismatch_prob_pearson": 0.94},
        negative=FLIPS,
        why="experts flip, yet the engines agree",
        delay=2,
    ),
    Case(
        rule="engine_mismatch",
        beyond={"mismatch_prob_pearson": 0.9499},
        at={"mismatch_prob_pearson": 0.95},
        negative={**LAG, "mismatch_prob_pearson": 0.5},
        why="weights moved in between: stale, not different",
    ),
    Case(
        rule="engine_mismatch",
        beyond={"mismatch_prob_diff_max": 0.5625},
        at={"mismatch_prob_diff_max": 0.5},
        negative={"engine_lag": math.nan, "mismatch_prob_diff_max": 0.875},
        why="an unknown lag is no evidence",
    ),
    Case(
        rule="engine_mismatch",
        beyond={"mismatch_ppl_ratio": 0.989, "mismatch_ppl_shift": -4.1},
        at={"mismatch_ppl_ratio": 1.01 - 1e-12, "mismatch_ppl_shift": 4.1},
        negative={"mismatch_ppl_ratio": 0.9, "mismatch_ppl_shift": -4.0},
        why="the noise of a small batch",
    ),
    Case(
        rule="engine_mismatch",
        beyond={"mismatch_kl_k1": 0.051},
        at={"mismatch_kl_k1": 0.05},
        negative={"mismatch_kl_k1": -0.06},
        why="below zero is noise, or support_shift's",
    ),
    Case(
        rule="support_shift",
        beyond={"mismatch_ratio_shift": -4.1, "mismatch_ratio_mean": 0.97},
        at={"mismatch_ratio_shift": -4.0, "mismatch_ratio_mean": 0.97},
        negative={"mismatch_ratio_shift": 40.0, "mismatch_ratio_mean": 1.001},
        why="significant in a huge batch, and of no size",
    ),
    Case(
        rule="stale_rollouts",
        beyond={**LAG, "mismatch_kl_k3": 0.051},
        at={**LAG, "mismatch_kl_k3": 0.05},
        negative=LAG,
        why="a lag that harms nothing",
    ),
    Case(
        rule="stale_updates",
        beyond={"staleness_lag": 1.0, "staleness_kl_k3": 0.051},
        at={"staleness_lag": 1.0, "staleness_kl_k3": 0.05},
        negative={"staleness_lag": 1.0, "staleness_kl_k3": 0.2, "mismatch_prob_pearson": 0.5},
        why="the engines disagree: look there first",
        delay=1,
    ),
    Case(
        rule="step_too_large",
        beyond={"staleness_kl_k3": 0.051},
        at={"staleness_kl_k3": 0.05},
        negative={"staleness_lag": 2.0, "staleness_kl_k3": 0.2},
        why="a lag explains it",
        delay=1,
    ),
    Case(
        rule="gradient_spike",
        beyond={"grad_norm": 10.01},
        at={"grad_norm": 10.0},
        negative={"grad_norm": 5.0},
        why="gradients vary",
        delay=1,
    ),
    Case(
        rule="variance_blowup",
        beyond={"mismatch_ess_token": 0.49},
        at={"mismatch_ess_token": 0.5},
        negative={"mismatch_ess_truncated": 0.1},
        why="truncated weights hide outliers, or make them up",
    ),
    Case(
        rule="variance_blowup",
        beyond={"mismatch_chi2_token": 1.01},
        at={"mismatch_chi2_token": 1.0},
        negative={"mismatch_chi2_token": math.nan},
        why="an unknown variance is not a large one",
    ),
    Case(
        rule="sequence_ess_drop",
        beyond={"ess_seq_relative": 0.25},
        at={"ess_seq_relative": 0.3},
        negative={"mismatch_ess_seq": 0.05},
        usual={"mismatch_ess_seq": 0.1},
        why="low, as long sequences are, but nearly as low as ever",
    ),
    Case(
        rule="gradient_variance",
        beyond={"grad_variance": 2.01},
        at={"grad_variance": 2.0},
        negative={"grad_variance": 0.1},
        why="it falls",
        delay=3,
    ),
    Case(
        rule="moderate_drift",
        beyond={"mismatch_chi2_token": 0.31},
        at={"mismatch_chi2_token": 0.3},
        negative={"mismatch_chi2_token": 0.9, "mismatch_ess_token": 0.4},
        why="no longer moderate",
    ),
    Case(
        rule="clip_saturation",
        beyond={"clip_fraction": 0.21},
        at={"clip_fraction": 0.2},
        negative={"clip_fraction": 0.15},
        why="it rises, from little to little",
        delay=3,
    ),
    Case(
        rule="length_surge",
        beyond={"response_length_mean": 61.0},
        at={"response_length_mean": 60.0},
        negative={"response_length_mean": 25.0},
        why="responses shrink",
        delay=2,
    ),
    Case(
        rule="no_learning_signal",
        beyond={"zero_variance_groups": 1.0},
        at={"zero_variance_groups": 0.9},
        negative={"reward_std": 0.0},
        why="the rule reads groups, not the batch",
    ),
    Case(
        rule="mask_rate",
        beyond={"mask_rate": 0.55},
        at={"mask_rate": 0.5},
        negative={"mask_rate:geo_mask": 0.9},
        why="a shadow rejects, but nothing is masked",
    ),
    Case(
        rule="length_biased_masking",
        beyond={"mask_rate": 0.2, "mask_rate_long": 0.6, "mask_rate_short": 0.2},
        at={"mask_rate": 0.15, "mask_rate_long": 0.4, "mask_rate_short": 0.2},
        negative={"mask_rate": 0.05, "mask_rate_long": 0.2, "mask_rate_short": 0.0},
        why="too few are rejected to tell",
    ),
    Case(
        rule="vacuous_bound",
        beyond={"bound_vacuous": 1.0},
        at={"bound_vacuous": 0.0},
        negative={"bound_vacuous": math.nan},
        why="without logits the bound is unknown",
    ),
    Case(
        rule="incomplete_ranks",
        beyond={"missing_ranks": 1.0},
        at={"missing_ranks": 0.0},
        negative={"policy_versions": 2.0},
        why="all ranks are present, with different policies",
    ),
    Case(
        rule="incomplete_ranks",
        beyond={"incomplete": 1.0},
        at={"incomplete": 0.0},
        negative={"step_seconds": 1e5},
        why="slow is not incomplete",
    ),
    Case(
        rule="decision_mismatch",
        beyond={"decision_mismatches": 1.0},
        at={"decision_mismatches": 0.0},
        negative={"policy_versions": 2.0},
        why="another policy is not another decision",
    ),
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


def _name(case: Case) -> str:
    return f"{case.rule}: {next(name for name in case.beyond if name not in LAG | FLIPS)}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_a_rule_fires_after_enough_steps_beyond_its_threshold_and_resolves_when_the_run_is_healthy(case: Case) -> None:
    rule = RULES[case.rule]
    long_enough = rule.for_steps + case.delay
    almost = run(case.beyond, steps=long_enough - 1)
    assert of(almost.events, case.rule) == []
    fired = almost.make_steps(case.beyond)
    # A rule that waits for the end of a step fires for the step before the one that ended it.
    waits = rule.reads_scalars or rule.reads.value == "every_update"
    assert of(fired.events, case.rule) == [(case.rule, "firing", QUIET_STEPS + long_enough - 1 - waits)]
    healed = fired.make_steps({}, steps=rule.clear_for_steps + 8)
    assert [state for _, state, _ in of(healed.events, case.rule)] == ["firing", "resolved"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.why}")
def test_a_rule_fires_neither_at_its_threshold_nor_for_similar_numbers(case: Case) -> None:
    steps = 2 * RULES[case.rule].for_steps + 5
    assert of(run(case.at, steps=steps).events, case.rule) == []
    assert of(run(case.negative, steps=steps, usual=case.usual).events, case.rule) == []


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


@pytest.mark.parametrize("case", [case for case in CASES if case.delay <= 1], ids=_name)
def test_only_rules_without_immune_steps_fire_in_the_first_steps(case: Case) -> None:
    fired = {rule for rule, _, _ in RuleRun().make_steps(case.beyond, steps=20).events}
    assert fired <= WITHOUT_IMMUNITY
    assert fired >= WITHOUT_IMMUNITY & {case.rule}


def test_a_healthy_run_raises_nothing() -> None:
    assert RuleRun().make_steps({}, steps=2 * QUIET_STEPS).events == []


def test_every_builtin_rule_over_signals_has_a_case() -> None:
    over_signals = {name for name, rule in RULES.items() if rule.reads_batches and not rule.is_prediction}
    elsewhere = {"spool_growing", "batch_quarantined"} | {rule for rule, *_ in SHOWS_HISTORY}
    assert over_signals == {case.rule for case in CASES} | elsewhere
