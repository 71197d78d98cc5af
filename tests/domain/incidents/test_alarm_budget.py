"""The alarm budget: what counts as a message, and what came of an alert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import (
    ENDED_LABEL,
    INCIDENT_RULE,
    Acknowledgement,
    Alert,
    AlertState,
    ListedAlert,
)
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.identity import RunKey
from trmon.domain.incidents.alarm_budget import (
    DAY_SECONDS,
    AlarmBudget,
    BudgetRecord,
    RuleBudget,
    alarm_budgets,
)
from trmon.domain.incidents.incident import CAUSE_LABEL, ENDED_ILL
from trmon.domain.runs.run import Run, RunEnding, RunState

NOW = 100 * DAY_SECONDS
BEGAN = NOW - 3 * DAY_SECONDS
ENDED = BEGAN + 3600.0
HIGH = replace(ALERT, since_at=BEGAN, updated_at=ENDED, state=AlertState.RESOLVED)
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
    again = replace(incident, since_at=ENDED + 5.0, updated_at=ENDED + 9.0)
    times = {"1/high": [BEGAN, BEGAN + 60.0, ENDED + 5.0]}
    found = budget_of(replace(LISTED, alert=incident), replace(LISTED, alert=again), fired_at=times)
    assert found == RuleBudget("stale_rollouts", messages=3, alerts=2, unanswered=2)


def test_what_a_silence_covers_is_not_sent_and_one_that_came_later_is_an_answer() -> None:
    found = budget_of(LISTED, silences=[SILENCE], fired_at={"1/high": [BEGAN, BEGAN + 60.0]})
    assert found == RuleBudget("high", messages=1, alerts=1, silenced=1)


def test_an_acknowledged_alert_was_answered() -> None:
    found = budget_of(replace(LISTED, ack=Acknowledgement(author="ana", note="", at=BEGAN)))
    assert found == RuleBudget("high", messages=1, alerts=1, acknowledged=1)


KILLED = RunEnding(at=ENDED + 60.0, reason="signal", signal="SIGTERM")
HARMED, UNANSWERED = (RuleBudget("high", messages=1, alerts=1, **{what: 1}) for what in ("harmed", "unanswered"))
HARMS: dict[str, dict[str, Any]] = {
    "the reward collapsed while it fired": {"collapses": [collapse(BEGAN - 60.0, BEGAN + 60.0)]},
    "the reward collapsed within a day after": {"collapses": [collapse(ENDED + 3600.0, NOW)]},
    "the run crashed": {"runs": [run_of(state=RunState.CRASHED, ending=RunEnding(at=BEGAN - 1.0))]},
    "a signal ended the run, which was continued": {"runs": [run_of(state=RunState.RUNNING, ending=KILLED)]},
    "the run fell silent": {"runs": [run_of(state=RunState.STALLED, last_report_at=BEGAN + 1.0)]},
}
NO_HARM: dict[str, dict[str, Any]] = {
    "the reward had recovered before": {"collapses": [collapse(BEGAN - 60.0, BEGAN - 1.0)]},
    "the reward collapsed two days after": {"collapses": [collapse(ENDED + 2 * DAY_SECONDS, NOW)]},
    "the run finished": {"runs": [run_of(state=RunState.FINISHED, ending=RunEnding(at=ENDED, reason="closed"))]},
}


@pytest.mark.parametrize("case", HARMS | NO_HARM)
def test_an_alert_is_followed_by_harm_only_if(case: str) -> None:
    assert budget_of(LISTED, **(HARMS | NO_HARM)[case]) == (HARMED if case in HARMS else UNANSWERED)


def test_a_run_that_finished_ill_was_harmed() -> None:
    incident = replace(HIGH, rule=INCIDENT_RULE, labels={CAUSE_LABEL: "entropy_collapse", ENDED_LABEL: ENDED_ILL})
    assert budget_of(replace(LISTED, alert=incident)).harmed == 1
