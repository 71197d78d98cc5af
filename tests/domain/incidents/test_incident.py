"""Incidents through the whole pipeline, one illness one opening, and the alarm budget: what came of alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.memory_log import MemoryLog
from tests.domain.ruleruns import Numbers, RuleRun, run
from trmon.domain.alerts.alert import (
    ENDED_LABEL,
    INCIDENT_RULE,
    SINCE_LABEL,
    Acknowledgement,
    Alert,
    AlertState,
    ListedAlert,
)
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.findings.verdict import COLLAPSE, PREDICTION
from trmon.domain.identity import RunKey
from trmon.domain.incidents.alarm_budget import DAY_SECONDS, AlarmBudget, BudgetRecord, RuleBudget, alarm_budgets
from trmon.domain.incidents.incident import (
    CAUSE_LABEL,
    ENDED_ILL,
    MAX_UPDATES,
    OPENING_STEPS,
    QUIET_STEPS,
    Incident,
    is_member,
)
from trmon.domain.runs.run import Run, RunEnding, RunState
from trmon.domain.severity import Severity

HEALTH = frozenset({"stale_rollouts", "mask_rate", "weak_learning_signal"})
OPENED = replace(
    ALERT,
    identity="1/incident",
    rule="incident",
    step=70,
    since_at=70.0,
    updated_at=70.0,
    labels={CAUSE_LABEL: "stale_rollouts", SINCE_LABEL: "62"},
)
ENDED = replace(OPENED, state=AlertState.RESOLVED, updated_at=120.0)
STALE = {"engine_lag": 2.0, "mismatch_kl_k3": 0.2}


def member(rule: str, *, at: float, until: float | None = None, severity: Severity = Severity.WARN) -> Alert:
    """Return an alert with an onset long before the incident, found at a time and resolved at another one."""
    state = AlertState.FIRING if until is None else AlertState.RESOLVED
    return replace(
        ALERT, rule=rule, step=3, since_at=at, updated_at=until or at, state=state, severity=severity, labels={}
    )


def test_alerts_of_health_that_fired_while_it_was_open_are_members_whenever_they_began() -> None:
    assert is_member(member("stale_rollouts", at=60.0), OPENED, health_rules=HEALTH)
    assert is_member(member("mask_rate", at=90.0, until=95.0), ENDED, health_rules=HEALTH)
    assert not is_member(member("mask_rate", at=50.0, until=69.0), OPENED, health_rules=HEALTH)
    assert not is_member(member("mask_rate", at=121.0), ENDED, health_rules=HEALTH)
    assert not is_member(member("two_trainers", at=80.0), OPENED, health_rules=HEALTH)
    info = member("weak_learning_signal", at=80.0, severity=Severity.INFO)
    assert not is_member(info, OPENED, health_rules=HEALTH)


def test_it_is_since_the_onset_and_a_prediction_has_no_last_good_step() -> None:
    assert Incident(alert=OPENED).since_step == 62
    predicted = replace(OPENED, labels={CAUSE_LABEL: PREDICTION})
    assert (Incident(alert=predicted).is_prediction, Incident(alert=predicted).last_good_step) == (True, None)


def test_it_is_recorded_that_a_run_finished_while_it_stood() -> None:
    ill = run(STALE, steps=30).finish().incident
    assert (ill.is_open, ill.ended_with_run) == (False, True)
    healed = run(STALE, steps=30, after=100).incident
    assert (healed.is_open, healed.ended_with_run) == (False, False)


def test_it_is_over_when_the_run_finishes_after_its_alerts_have_ended() -> None:
    quiet = run({"mask_rate": 0.6}, steps=30, after=20)
    assert (quiet.firing, quiet.incident.is_open) == ({"incident"}, True)
    ended = quiet.finish().incident
    assert (ended.is_open, ended.ended_with_run) == (False, False)


SYMPTOMS = {"mask_rate": 0.6}
DIFFERENT = {"mismatch_prob_pearson": 0.9}
CORRUPT = {"invalid_fraction": 0.5}
WELL: Numbers = {}
BOTH = {**SYMPTOMS, **STALE}
AGAIN = [(STALE, 30), (WELL, 40)]


def test_the_onset_is_that_of_the_finding_that_leads_and_not_the_step_at_which_it_was_found() -> None:
    late = run(SYMPTOMS, steps=20).make_steps(BOTH, steps=10).incident
    assert (late.since_step, late.last_good_step) == (150, 149)
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


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        pytest.param([(BOTH, 30)], ["stale_rollouts"], id="a symptom joins its cause"),
        pytest.param([(SYMPTOMS, OPENING_STEPS)], [], id="a warning waits for a cause that is certain later"),
        pytest.param([(SYMPTOMS, OPENING_STEPS + 1)], ["mask_rate"], id="and is told without one"),
        pytest.param([(SYMPTOMS, 5), (BOTH, 10)], ["stale_rollouts"], id="told once, and by its cause"),
        pytest.param([(SYMPTOMS, 5), (WELL, 30)], [], id="a warning that ends within the waiting"),
        pytest.param([(SYMPTOMS, 20), (BOTH, 10)], ["mask_rate", "stale_rollouts"], id="a cause after its symptom"),
        pytest.param([*AGAIN, (SYMPTOMS, 5), (BOTH, 20)], ["stale_rollouts"], id="that comes again waits too"),
        pytest.param([*AGAIN, (SYMPTOMS, 20)], ["stale_rollouts", "mask_rate"], id="another symptom, alone"),
        pytest.param([(CORRUPT, 4)], ["corrupt_logprobs"], id="a page opens at once"),
        pytest.param([(SYMPTOMS, 12), (WELL, QUIET_STEPS + 10)], ["mask_rate", "mask_rate: resolved"], id="an end"),
    ],
)
def test_an_incident_is_told_by_its_cause(parts: list[tuple[Numbers, int]], told: list[str]) -> None:
    ill = run(WELL, steps=0)
    for numbers, steps in parts:
        ill.make_steps(numbers, steps=steps)
    assert [cause if status == "firing" else f"{cause}: {status}" for status, cause in ill.causes] == told
    assert len(ill.notifications) == len(told)
    assert ("mask_rate" in {rule for rule, _, _ in ill.events}) is any("mask_rate" in numbers for numbers, _ in parts)


def test_a_page_is_told_though_the_finding_that_leads_stays() -> None:
    ill = run(DIFFERENT, steps=40).make_steps({**DIFFERENT, **CORRUPT}, steps=10)
    severities = [(told.reason, told.alert.severity.value) for told in ill.notifications]
    assert severities == [("a finding stands", "warn"), ("it has become a page", "page")]
    assert {cause for _, cause in ill.causes} == {"engine_mismatch"}


def test_at_most_three_updates_are_told_and_a_page_is_always_one_of_them() -> None:
    ill = run(SYMPTOMS, steps=10)
    for _ in range(4):
        ill.make_steps(BOTH, steps=30).make_steps(SYMPTOMS, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert len(firing) == MAX_UPDATES
    for _ in range(2):
        ill.make_steps({**SYMPTOMS, **CORRUPT}, steps=30).make_steps(SYMPTOMS, steps=40)
    firing = [told for told in ill.notifications if told.status is AlertState.FIRING]
    assert [told.alert.severity for told in firing] == [Severity.WARN] * MAX_UPDATES + [Severity.PAGE]


@pytest.mark.slow
@pytest.mark.parametrize(("quiet", "steps", "most"), [(20, 600, 1), (60, 800, 2), (150, 1500, 3)])
def test_a_run_that_is_ill_on_and_off_opens_few_incidents(quiet: int, steps: int, most: int) -> None:
    flapping = RuleRun().make_steps({}, steps=130)
    while flapping.step < steps:
        flapping.make_steps(SYMPTOMS, steps=12).make_steps({}, steps=quiet)
    openings = [state for _, state, _ in flapping.incidents if state == "firing"]
    assert len(openings) <= most


def test_the_notification_says_cause_evidence_and_what_to_do() -> None:
    (told, *_) = run(STALE, steps=12).notifications
    expected: dict[str, Any] = {"rule": "stale_rollouts", "title": "stale rollouts", "last_good_step": 129}
    assert {name: getattr(told.cause, name) for name in expected} == expected
    assert told.cause.remedy
    assert told.summary.startswith("math/grpo: stale rollouts since step 130 (last good step 129): KL per token is 0.2")


NOW = 100 * DAY_SECONDS
BEGAN = NOW - 3 * DAY_SECONDS
OVER = BEGAN + 3600.0
HIGH = replace(ALERT, since_at=BEGAN, updated_at=OVER, state=AlertState.RESOLVED)
LISTED = ListedAlert(id=1, run=RunKey("math", "grpo"), alert=HIGH)
SILENCE = Silence(
    id=1,
    project=None,
    matchers=(Matcher(label="rule", operator=MatchOperator.EQUAL, value="high"),),
    author="ana",
    note="",
    starts_at=BEGAN + 10.0,
    ends_at=NOW,
)


def run_of(**fields: Any) -> Run:
    return replace(MemoryLog().stored_run, id=1, **fields)


def collapse(since: float, until: float) -> Alert:
    return replace(HIGH, rule=COLLAPSE, identity=f"1/{COLLAPSE}", since_at=since, updated_at=until)


def record(*alerts: ListedAlert, **fields: Any) -> BudgetRecord:
    usual: dict[str, Any] = {
        "alerts": alerts,
        "collapses": (),
        "fired_at": {"1/high": [BEGAN]},
        "silences": (),
        "runs": (),
        "trained": [(NOW - 40 * DAY_SECONDS, NOW - 5 * DAY_SECONDS)],
    }
    return BudgetRecord(**usual | fields)


def budget_of(*alerts: ListedAlert, **fields: Any) -> RuleBudget:
    [found] = of_week(*alerts, **fields).rules
    return found


def of_week(*alerts: ListedAlert, **fields: Any) -> AlarmBudget:
    return alarm_budgets(record(*alerts, **fields), now=NOW)[0]


def test_days_of_training_are_those_within_the_window() -> None:
    budgets = alarm_budgets(record(LISTED), now=NOW)
    assert [round(budget.run_days, 6) for budget in budgets] == [2.0, 25.0]
    assert [budget.per_run_day(budget.messages) for budget in budgets] == pytest.approx([0.5, 0.04])


def test_below_a_day_of_training_there_is_no_rate() -> None:
    found = of_week(LISTED, trained=[(NOW - 3600, NOW)])
    assert (found.messages, found.per_run_day(found.messages)) == (1, None)


def test_an_alert_of_before_the_window_does_not_count() -> None:
    assert of_week(LISTED, fired_at={"1/high": [NOW - 8 * DAY_SECONDS]}).rules == ()


def test_each_change_is_a_message_of_its_episode_and_an_incident_counts_for_its_cause() -> None:
    incident = replace(HIGH, rule=INCIDENT_RULE, labels={CAUSE_LABEL: "stale_rollouts"})
    again = replace(incident, since_at=OVER + 5.0, updated_at=OVER + 9.0)
    times = {"1/high": [BEGAN, BEGAN + 60.0, OVER + 5.0]}
    found = budget_of(replace(LISTED, alert=incident), replace(LISTED, alert=again), fired_at=times)
    assert found == RuleBudget("stale_rollouts", messages=3, alerts=2, unanswered=2)


def test_what_a_silence_covers_is_not_sent_and_one_that_came_later_is_an_answer() -> None:
    found = budget_of(LISTED, silences=[SILENCE], fired_at={"1/high": [BEGAN, BEGAN + 60.0]})
    assert found == RuleBudget("high", messages=1, alerts=1, silenced=1)


def test_an_acknowledged_alert_was_answered() -> None:
    found = budget_of(replace(LISTED, ack=Acknowledgement(author="ana", note="", at=BEGAN)))
    assert found == RuleBudget("high", messages=1, alerts=1, acknowledged=1)


KILLED = RunEnding(at=OVER + 60.0, reason="signal", signal="SIGTERM")
HARMED, UNANSWERED = (RuleBudget("high", messages=1, alerts=1, **{what: 1}) for what in ("harmed", "unanswered"))
HARMS: dict[str, dict[str, Any]] = {
    "the reward collapsed while it fired": {"collapses": [collapse(BEGAN - 60.0, BEGAN + 60.0)]},
    "the reward collapsed within a day after": {"collapses": [collapse(OVER + 3600.0, NOW)]},
    "the run crashed": {"runs": [run_of(state=RunState.CRASHED, ending=RunEnding(at=BEGAN - 1.0))]},
    "a signal ended the run, which was continued": {"runs": [run_of(state=RunState.RUNNING, ending=KILLED)]},
    "the run fell silent": {"runs": [run_of(state=RunState.STALLED, last_report_at=BEGAN + 1.0)]},
}
NO_HARM: dict[str, dict[str, Any]] = {
    "the reward had recovered before": {"collapses": [collapse(BEGAN - 60.0, BEGAN - 1.0)]},
    "the reward collapsed two days after": {"collapses": [collapse(OVER + 2 * DAY_SECONDS, NOW)]},
    "the run finished": {"runs": [run_of(state=RunState.FINISHED, ending=RunEnding(at=OVER, reason="closed"))]},
}


@pytest.mark.parametrize("case", HARMS | NO_HARM)
def test_an_alert_is_followed_by_harm_only_if(case: str) -> None:
    assert budget_of(LISTED, **(HARMS | NO_HARM)[case]) == (HARMED if case in HARMS else UNANSWERED)


def test_a_run_that_finished_ill_was_harmed() -> None:
    incident = replace(HIGH, rule=INCIDENT_RULE, labels={CAUSE_LABEL: "entropy_collapse", ENDED_LABEL: ENDED_ILL})
    assert budget_of(replace(LISTED, alert=incident)).harmed == 1
