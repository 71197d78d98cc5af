"""Incidents through the whole pipeline: one illness is one opening, at most three updates and one end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.ruleruns import RuleRun, run
from trmon.domain.alerts.alert import AlertState
from trmon.domain.incidents.incident import QUIET_STEPS
from trmon.domain.incidents.incident_updates import MAX_UPDATES, OPENING_STEPS
from trmon.domain.severity import Severity

STALE = {"engine_lag": 2.0, "mismatch_kl_k3": 0.2}
SYMPTOMS = {"mask_rate": 0.6}
DIFFERENT = {"mismatch_prob_pearson": 0.9}
CORRUPT = {"invalid_fraction": 0.5}


def test_symptoms_join_the_incident_and_notify_nobody_themselves() -> None:
    ill = run({**STALE, **SYMPTOMS}, steps=30)
    assert {"stale_rollouts", "mask_rate"} <= {rule for rule, state, _ in ill.events if state == "firing"}
    assert ill.causes == [("firing", "stale_rollouts")]
    assert len(ill.notifications) == 1


def test_the_finding_that_leads_gives_the_onset_though_its_symptom_came_first() -> None:
    ill = run(SYMPTOMS, steps=20).make_steps({**SYMPTOMS, **STALE}, steps=10)
    assert ill.causes == [("firing", "mask_rate"), ("firing", "stale_rollouts")]
    assert (ill.incident.since_step, ill.incident.last_good_step) == (150, 149)


def test_the_onset_is_not_the_step_at_which_it_was_found() -> None:
    ill = run(STALE, steps=12)
    assert ("stale_rollouts", "firing", 132) in ill.events
    [alert] = [one for one in ill.pipeline_state.open_alerts() if one.rule == "stale_rollouts"]
    assert (alert.step, ill.incident.since_step, ill.incident.alert.step) == (130, 130, 140)


def test_the_onset_moves_to_the_fall_of_the_reward_whose_page_is_the_only_other_message() -> None:
    falling = {"reward_mean": 0.3}
    ill = run(falling, steps=3).make_steps({**falling, **STALE}, steps=15)
    assert (ill.incident.cause, ill.incident.since_step) == ("stale_rollouts", 133)
    ill.make_steps({**falling, **STALE}, steps=10)
    assert "reward_decline" in ill.firing
    assert (ill.incident.cause, ill.incident.since_step, ill.incident.last_good_step) == ("stale_rollouts", 130, 129)
    assert ill.incident.alert.summary.startswith("math/grpo: stale rollouts since step 130 (last good step 129): KL")
    assert [told.alert.severity for told in ill.notifications] == [Severity.WARN, Severity.PAGE]


def test_a_cause_that_stands_but_no_longer_leads_hands_over_to_the_fall_of_the_reward() -> None:
    ill = run(STALE, steps=80).make_steps({**STALE, "reward_mean": 0.02}, steps=40)
    assert {"stale_rollouts", "reward_collapse"} <= ill.firing
    assert ill.causes[-1] == ("firing", "reward_collapse"), "an incident and the judge name one cause"
    assert ill.incident.since_step == 210


def test_an_incident_of_warnings_waits_for_a_cause_that_is_certain_later() -> None:
    ill = run(SYMPTOMS, steps=OPENING_STEPS)
    assert [rule for rule, state, _ in ill.events if state == "firing"] == ["mask_rate"]
    assert ill.causes == []
    assert ill.make_steps(SYMPTOMS).causes == [("firing", "mask_rate")]
    late = run(SYMPTOMS, steps=5).make_steps({**SYMPTOMS, **STALE}, steps=10)
    assert late.causes == [("firing", "stale_rollouts")], "told once, and by its cause"


def test_a_symptom_of_an_illness_that_comes_again_waits_for_its_cause_too() -> None:
    again = run(STALE, steps=30).make_steps({}, steps=40).make_steps(SYMPTOMS, steps=5)
    assert "mask_rate" in again.firing
    assert again.make_steps({**SYMPTOMS, **STALE}, steps=20).causes == [("firing", "stale_rollouts")]
    alone = run(STALE, steps=30).make_steps({}, steps=40).make_steps(SYMPTOMS, steps=20)
    assert alone.causes == [("firing", "stale_rollouts"), ("firing", "mask_rate")]


def test_an_incident_with_a_page_opens_at_once() -> None:
    assert run(CORRUPT, steps=4).causes == [("firing", "corrupt_logprobs")]


def test_a_warning_that_ends_within_the_waiting_is_told_to_nobody() -> None:
    assert run(SYMPTOMS, steps=5, after=30).causes == []


def test_a_page_is_told_though_the_finding_that_leads_stays() -> None:
    ill = run(DIFFERENT, steps=40).make_steps({**DIFFERENT, **CORRUPT}, steps=10)
    severities = [(told.reason, told.alert.severity.value) for told in ill.notifications]
    assert severities == [("a finding stands", "warn"), ("it has become a page", "page")]
    assert {cause for _, cause in ill.causes} == {"engine_mismatch"}


def test_at_most_three_updates_are_told_and_a_page_is_always_one_of_them() -> None:
    ill = run(SYMPTOMS, steps=10)
    for _ in range(8):
        ill.make_steps({**SYMPTOMS, **STALE}, steps=30).make_steps(SYMPTOMS, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert len(firing) == MAX_UPDATES
    for _ in range(4):
        ill.make_steps({**SYMPTOMS, **CORRUPT}, steps=30).make_steps(SYMPTOMS, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert [told.alert.severity for told in firing] == [Severity.WARN] * MAX_UPDATES + [Severity.PAGE]


def test_an_incident_ends_after_quiet_steps_and_is_told_once() -> None:
    healed = run(SYMPTOMS, steps=12, after=QUIET_STEPS + 10)
    assert [state for _, state, _ in healed.incidents] == ["firing", "resolved"]
    assert healed.causes == [("firing", "mask_rate"), ("resolved", "mask_rate")]


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [20, 60, 150], ids=lambda steps: f"{steps} quiet steps between")
def test_a_run_that_is_ill_on_and_off_for_1500_steps_opens_few_incidents(quiet: int) -> None:
    flapping = RuleRun().make_steps({}, steps=130)
    while flapping.step < 1_500:
        flapping.make_steps(SYMPTOMS, steps=12).make_steps({}, steps=quiet)
    openings = [state for _, state, _ in flapping.incidents if state == "firing"]
    assert len(openings) <= {20: 1, 60: 2, 150: 3}[quiet]


def test_the_notification_says_cause_evidence_and_what_to_do() -> None:
    (told, *_) = run(STALE, steps=12).notifications
    expected: dict[str, Any] = {"rule": "stale_rollouts", "title": "stale rollouts", "last_good_step": 129}
    assert {name: getattr(told.cause, name) for name in expected} == expected
    assert told.cause.remedy
    assert told.summary.startswith("math/grpo: stale rollouts since step 130 (last good step 129): KL per token is 0.2")
