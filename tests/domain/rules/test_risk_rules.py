"""The rules over the risk of a collapse: their thresholds are the model's, and findings come before predictions."""

from __future__ import annotations

import math

import pytest
from trmon.domain.finding import Finding, Severity

from tests.domain.pipeline.closings import pass_context
from tests.domain.ruleruns import RuleRun
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import DRIVER_PREFIX, RISK
from trmon.domain.errors import InvalidInput
from trmon.domain.incidents.incident import PREDICTION_RULES, QUIET_STEPS
from trmon.domain.incidents.incident_updates import OPENING_STEPS
from trmon.domain.rules.condition import comparisons_of
from trmon.domain.rules.condition_yaml import condition_to_yaml, parse_condition
from trmon.domain.rules.rule_yaml import builtin_rules

RULES = {rule.name: rule for rule in builtin_rules()}
WARN, PAGE = RULES["collapse_risk"], RULES["collapse_risk_high"]
MODEL = shipped_model().file
HIGH = (1.0 + MODEL.page_at) / 2
FIRES = WARN.immune_steps + WARN.for_steps + 1
"""Steps of a high risk after which both rules fire: they wait for the next step, since scalars may arrive late."""
DRIVERS = {f"{DRIVER_PREFIX}grad_norm": 2.0, f"{DRIVER_PREFIX}reward_mean": 1.0, f"{DRIVER_PREFIX}lr": -1.0}
STALE = {"engine_lag": 2.0, "mismatch_kl_k3": 0.1}


def begun() -> RuleRun:
    """Return a run that is judged by all rules, predictions too."""
    return RuleRun(context=pass_context())


def test_the_thresholds_are_those_of_the_model() -> None:
    limits = {rule.name: list(comparisons_of(rule.when))[-1] for rule in (WARN, PAGE)}
    assert limits["collapse_risk"].threshold == MODEL.warn_at
    assert limits["collapse_risk_high"].threshold == MODEL.page_at
    assert all(limit.clear == pytest.approx(0.8 * limit.threshold) for limit in limits.values())
    assert (WARN.severity, PAGE.severity) == (Severity.WARN, Severity.PAGE)
    assert {rule.name for rule in RULES.values() if rule.is_prediction} == set(PREDICTION_RULES)


def test_a_rule_may_name_a_threshold_of_the_model_and_is_written_back_with_its_value() -> None:
    when = parse_condition(
        {"signal": RISK, "above": {"model": "page_at"}, "clear": {"model": "warn_at", "times": 0.5}}, "when"
    )
    assert condition_to_yaml(when) == {"signal": RISK, "above": MODEL.page_at, "clear": 0.5 * MODEL.warn_at}


@pytest.mark.parametrize(
    ("threshold", "field", "message"),
    [
        ({"model": "stop_at"}, "when.above.model", "must be one of warn_at, page_at, and is str 'stop_at'"),
        ({"times": 2.0}, "when.above.model", "and is nothing"),
        ({"model": "warn_at", "plus": 1}, "when.above.plus", "is not allowed here"),
        ({"model": "warn_at", "times": "x"}, "when.above.times", "must be a number"),
    ],
)
def test_a_threshold_that_the_model_lacks_is_refused(threshold: object, field: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        parse_condition({"signal": RISK, "above": threshold}, "when")
    assert refused.value.field == field


def test_a_high_risk_pages_with_its_drivers_and_opens_an_incident_alone() -> None:
    ran = begun().make_steps({**DRIVERS, RISK: HIGH}, steps=FIRES)
    assert ran.firing == {"collapse_risk", "collapse_risk_high", "incident"}
    assert ran.causes == [("firing", "collapse_risk_high")]
    assert ran.incident.finding is None
    assert ran.incident.severity is Severity.PAGE
    assert ran.incident.alert.summary.startswith("math/grpo: risk of collapse since step ")
    assert ran.incident.alert.summary.endswith("driven by gradient norm and reward")


@pytest.mark.parametrize("risk", [math.nan, MODEL.warn_at / 2, MODEL.warn_at])
def test_a_risk_that_is_not_known_or_not_above_its_threshold_raises_nothing(risk: float) -> None:
    ran = begun().make_steps({RISK: risk}, steps=FIRES + 5)
    assert (ran.events, ran.incidents) == ([], [])


def test_a_risk_that_falls_clears_only_below_its_lower_threshold() -> None:
    ran = begun().make_steps({RISK: HIGH}, steps=FIRES).make_steps({RISK: 0.9 * MODEL.warn_at}, steps=30)
    assert "collapse_risk" in ran.firing
    ran.make_steps({RISK: 0.0}, steps=WARN.clear_for_steps + 1)
    assert ran.firing == {"incident"}
    assert not ran.make_steps({RISK: 0.0}, steps=QUIET_STEPS).firing


def test_a_cause_that_is_found_leads_in_place_of_the_prediction() -> None:
    ran = begun().make_steps({RISK: HIGH}, steps=FIRES).make_steps({RISK: HIGH, **STALE}, steps=10)
    assert ran.causes == [("firing", "collapse_risk_high"), ("firing", "stale_rollouts")]
    assert ran.incident.finding is Finding.STALENESS


def test_what_came_true_broke_where_it_was_found_not_where_it_was_predicted() -> None:
    ran = begun().make_steps({RISK: HIGH}, steps=FIRES)
    predicted = ran.incident.since_step
    ran.make_steps({RISK: HIGH}, steps=20)
    first_stale = ran.step
    ran.make_steps({RISK: HIGH, **STALE}, steps=10)
    assert (ran.incident.since_step, ran.incident.last_good_step) == (first_stale, first_stale - 1)
    assert f"staleness since step {first_stale}: " in ran.incident.alert.summary
    assert ran.incident.alert.step == predicted, "the episode stays the one that opened"
    ran.make_steps({RISK: HIGH, **STALE, "invalid_fraction": 0.5}, steps=10)
    assert ran.incident.since_step == first_stale, "a later cause does not move it"


def test_an_incident_that_opens_with_a_finding_and_a_prediction_broke_at_the_finding() -> None:
    risk = {RISK: (MODEL.warn_at + MODEL.page_at) / 2}
    ran = (
        begun()
        .make_steps({}, steps=WARN.immune_steps)
        .make_steps({**risk}, steps=2)
        .make_steps({**risk, **STALE}, steps=OPENING_STEPS - 1)
    )
    assert ran.causes == [("firing", "stale_rollouts")]
    assert ran.incident.alert.step == WARN.immune_steps
    assert (ran.incident.since_step, ran.incident.last_good_step) == (WARN.immune_steps + 2, WARN.immune_steps + 1)


def test_once_the_reward_has_collapsed_the_incident_is_about_that() -> None:
    ran = begun().make_steps({RISK: HIGH}, steps=FIRES).make_steps({RISK: HIGH, "reward_collapse": 1.5}, steps=20)
    assert ran.incident.finding is Finding.REWARD_COLLAPSE
    assert not ran.firing & {"collapse_risk", "collapse_risk_high"}
    later = (
        begun()
        .make_steps({"reward_collapse": 1.5}, steps=30)
        .make_steps({RISK: HIGH, "reward_collapse": 1.5}, steps=20)
    )
    assert later.causes == [("firing", "reward_collapse")]
    assert later.firing == {"reward_collapse", "incident"}


def test_a_run_that_finishes_has_no_prediction_that_begins_or_stays() -> None:
    ended = begun().make_steps({RISK: HIGH}, steps=FIRES - 1).finish()
    assert ended.causes == []
    stood = begun().make_steps({RISK: HIGH}, steps=FIRES).finish()
    assert stood.causes == [("firing", "collapse_risk_high"), ("resolved", "collapse_risk_high")]
    assert not stood.incident.ended_with_run, "it did not end ill"


def test_what_was_wrong_beside_a_prediction_ends_with_the_run() -> None:
    ran = begun().make_steps({RISK: HIGH}, steps=FIRES).make_steps({RISK: HIGH, "mask_rate": 0.9}, steps=10).finish()
    assert ran.incident.cause == "mask_rate"
    assert ran.incident.ended_with_run
