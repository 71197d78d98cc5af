"""Incidents through the whole pipeline: one illness is one opening, at most three updates and one end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.ruleruns import RuleRun, run
from trmon.domain.alerts.alert import AlertState
from trmon.domain.incidents.incident import QUIET_STEPS
from trmon.domain.incidents.incident_updates import LATEST_CAUSE_STEPS, MAX_UPDATES, OPENING_STEPS
from trmon.domain.severity import Severity

STALE = {"engine_lag": 2.0, "mismatch_kl_k3": 0.1}
SYMPTOMS = {"mask_rate": 0.6}
DIFFERENT = {"mismatch_prob_pearson": 0.9}
SHIFTED = {"mismatch_ratio_shift": -4.1, "mismatch_ratio_mean": 0.97}
FALLEN = {"reward_mean": 0.0}


def test_symptoms_join_the_incident_and_notify_nobody_themselves() -> None:
    ill = run({**STALE, **SYMPTOMS}, steps=30)
    assert [rule for rule, state, _ in ill.events if state == "firing"] == ["stale_rollouts", "mask_rate"]
    assert ill.causes == [("firing", "stale_rollouts")]
    assert len(ill.notifications) == 1


def test_the_cause_leads_the_incident_though_its_symptom_came_first() -> None:
    ill = run(SYMPTOMS, steps=20).make_steps({**SYMPTOMS, **STALE}, steps=10)
    assert ill.causes == [("firing", "mask_rate"), ("firing", "stale_rollouts")]
    assert ill.incident.since_step == 130, "the start of the chain never moves"
    assert ill.incident.last_good_step == 129


def test_an_incident_of_warnings_waits_for_a_cause_that_is_certain_later() -> None:
    ill = run(SYMPTOMS, steps=OPENING_STEPS)
    assert [rule for rule, state, _ in ill.events if state == "firing"] == ["mask_rate"]
    assert ill.causes == []
    assert ill.make_steps(SYMPTOMS).causes == [("firing", "mask_rate")]
    late = run(SYMPTOMS, steps=5).make_steps({**SYMPTOMS, **STALE}, steps=10)
    assert late.causes == [("firing", "stale_rollouts")], "told once, and by its cause"


def test_an_incident_with_a_page_opens_at_once() -> None:
    ill = run({"invalid_fraction": 0.5}, steps=3)
    assert ill.causes == [("firing", "corrupt_logprobs")]


def test_a_warning_that_ends_within_the_waiting_is_told_to_nobody() -> None:
    assert run(SYMPTOMS, steps=5, after=30).causes == []


def test_a_finding_that_begins_long_after_the_illness_is_not_its_cause() -> None:
    ill = run(DIFFERENT, steps=LATEST_CAUSE_STEPS + 5).make_steps({**DIFFERENT, **SHIFTED}, steps=10)
    assert "support_shift" in {rule for rule, state, _ in ill.events if state == "firing"}
    assert {cause for _, cause in ill.causes} == {"engine_mismatch"}


def test_a_page_leads_however_late_it_begins() -> None:
    ill = run(STALE, steps=LATEST_CAUSE_STEPS + 5).make_steps({**STALE, "invalid_fraction": 0.5}, steps=10)
    assert ill.causes == [("firing", "stale_rollouts"), ("firing", "corrupt_logprobs")]


def test_a_cause_that_stood_for_long_gives_way_only_after_as_long_a_quiet() -> None:
    ill = run({**STALE, **FALLEN}, steps=60).make_steps(FALLEN, steps=55)
    assert [cause for _, cause in ill.causes] == ["stale_rollouts"]
    assert ill.make_steps(FALLEN, steps=20).causes[-1] == ("firing", "reward_collapse")


def test_rewards_that_become_equal_as_they_fall_do_not_take_over_from_the_fall() -> None:
    ill = run({"reward_mean": 0.02, "zero_variance_groups": 1.0}, steps=300)
    assert {cause for _, cause in ill.causes} == {"reward_collapse"}


def test_an_incident_that_becomes_a_page_says_so_once() -> None:
    ill = run({"reward_mean": 0.3}, steps=60).make_steps({"reward_mean": 0.0}, steps=40)
    severities = [(told.reason, told.alert.severity.value) for told in ill.notifications]
    assert severities == [("a finding stands", "warn"), ("it has become a page", "page")]


def test_at_most_three_updates_are_told_and_a_page_is_always_one_of_them() -> None:
    ill = run({"mask_rate": 0.6}, steps=10)
    for _ in range(8):
        ill.make_steps({"mask_rate": 0.6, **STALE}, steps=30).make_steps({"mask_rate": 0.6}, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert len(firing) == MAX_UPDATES
    for _ in range(4):
        ill.make_steps({"mask_rate": 0.6, "invalid_fraction": 0.5}, steps=30).make_steps({"mask_rate": 0.6}, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert [told.alert.severity for told in firing] == [Severity.WARN] * MAX_UPDATES + [Severity.PAGE]


def test_an_incident_ends_after_quiet_steps_and_is_told_once() -> None:
    healed = run(SYMPTOMS, steps=12, after=QUIET_STEPS + 10)
    assert [state for _, state, _ in healed.incidents] == ["firing", "resolved"]
    assert healed.causes == [("firing", "mask_rate"), ("resolved", "mask_rate")]


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [20, 60, 150], ids=lambda steps: f"{steps} quiet steps between")
def test_a_run_that_is_ill_on_and_off_for_3000_steps_opens_few_incidents(quiet: int) -> None:
    flapping = RuleRun().make_steps({}, steps=130)
    while flapping.step < 3_000:
        flapping.make_steps(SYMPTOMS, steps=12).make_steps({}, steps=quiet)
    openings = [state for _, state, _ in flapping.incidents if state == "firing"]
    assert len(openings) <= {20: 1, 60: 2, 150: 3}[quiet]


def test_the_notification_says_cause_evidence_and_what_to_do() -> None:
    (told, *_) = run(STALE, steps=11).notifications
    expected: dict[str, Any] = {"rule": "stale_rollouts", "finding": "B", "title": "staleness", "last_good_step": 129}
    assert {name: getattr(told.cause, name) for name in expected} == expected
    assert told.cause.remedy.startswith("Reduce the lag")
    assert told.summary.startswith("math/grpo: staleness since step 130: ")


GRADIENT = {"grad_norm": 1_000.0}


def test_what_begins_long_after_the_reward_fell_is_not_its_cause() -> None:
    ill = run(FALLEN, steps=70).make_steps({**FALLEN, **GRADIENT}, steps=10)
    assert "gradient_spike" in {rule for rule, state, _ in ill.events if state == "firing"}
    assert "gradient_spike" not in {cause for _, cause in ill.causes}


def test_what_begins_with_the_fall_of_the_reward_is_its_cause() -> None:
    ill = run(FALLEN, steps=10).make_steps({**FALLEN, **GRADIENT}, steps=10)
    assert ill.causes[-1] == ("firing", "gradient_spike")
