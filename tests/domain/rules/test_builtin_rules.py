"""The built-in rules beside the findings, from rows to alerts: when they fire, and when they do not."""

from __future__ import annotations

import math

import pytest

from tests.domain.ruleruns import QUIET_STEPS, Numbers, RuleRun, of, run
from trmon.domain.rules.rule_yaml import builtin_rules

RULES = {rule.name: rule for rule in builtin_rules().others}
WITHOUT_IMMUNITY = {rule.name for rule in builtin_rules().rules if not rule.immune_steps}
CASES: tuple[tuple[str, str, float, float, Numbers], ...] = (
    ("mask_rate", "mask_rate", 0.51, 0.5, {}),
    ("length_biased_masking", "mask_rate_long", 0.41, 0.4, {"mask_rate": 0.2, "mask_rate_short": 0.2}),
    ("vacuous_bound", "bound_vacuous", 1.0, 0.0, {}),
    ("incomplete_ranks", "missing_ranks", 1.0, 0.0, {}),
    ("incomplete_ranks", "incomplete", 1.0, 0.0, {}),
    ("decision_mismatch", "decision_mismatches", 1.0, 0.0, {}),
)
"""A rule, a signal that it reads, a value just beyond its threshold, one exactly at it, and the values of others."""

NOT_FOR: tuple[tuple[str, str, Numbers], ...] = (
    ("mask_rate", "a shadow rejects, but nothing is masked", {"mask_rate:geo_mask": 0.9}),
    ("length_biased_masking", "too few are rejected to tell", {"mask_rate": 0.05, "mask_rate_long": 0.2}),
    ("vacuous_bound", "without logits the bound is unknown", {"bound_vacuous": math.nan}),
    ("incomplete_ranks", "all ranks are present, with different policies", {"policy_versions": 2.0}),
    ("incomplete_ranks", "slow is not incomplete", {"step_seconds": 1e5}),
    ("decision_mismatch", "another policy is not another decision", {"policy_versions": 2.0}),
)
IDS = [f"{rule}: {signal}" for rule, signal, *_ in CASES]


@pytest.mark.parametrize(("rule", "signal", "beyond", "at", "beside"), CASES, ids=IDS)
def test_a_rule_fires_after_enough_steps_beyond_its_threshold_and_resolves_when_the_run_is_healthy(
    rule: str, signal: str, beyond: float, at: float, beside: Numbers
) -> None:
    known, ill = RULES[rule], {**beside, signal: beyond}
    ran = run(ill, steps=known.for_steps - 1)
    assert of(ran.events, rule) == []
    # A rule that waits for the end of a step fires for the step before the one that ended it.
    waits = known.reads_scalars or known.reads.value == "every_update"
    fired = (rule, "firing", QUIET_STEPS + known.for_steps - 1 - waits)
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
    over_signals = {name for name, rule in RULES.items() if rule.reads_batches}
    assert over_signals == {rule for rule, *_ in CASES} | {"spool_growing", "batch_quarantined"}
