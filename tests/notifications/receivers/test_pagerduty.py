"""PagerDuty, against a real server: one incident an alert, triggered and resolved under one key."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.notifications.receivers.notices import posted, told
from trmon.domain.alerts.alert import AlertState
from trmon.domain.model.identity import RunKey
from trmon.domain.model.severity import Severity
from trmon.notifications.receivers.pagerduty import MAX_KEY_LENGTH, PagerDuty
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult

make = partial(PagerDuty, routing_key="R0UT1NG")


def test_a_firing_alert_triggers_an_incident() -> None:
    result, event = posted(make, told())
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert (event["routing_key"], event["event_action"]) == ("R0UT1NG", "trigger")
    assert event["dedup_key"] == "trmon:math/grpo:mask_rate:team=rl"
    assert event["links"] == [{"href": "https://trmon.example/runs/math/grpo?step=7", "text": "step 7"}]
    assert event["payload"] == {
        "summary": "math/grpo: <!channel> & more",
        "severity": "critical",
        "source": "math/grpo",
        "class": "mask_rate",
        "timestamp": "2027-01-15T08:00:00.000+00:00",
        "custom_details": {
            "team": "rl",
            "value": 0.75,
            "threshold": 0.5,
            "step": 7,
            "owner": "ana",
            "do": "Find the drift first.",
        },
    }


def test_it_resolves_under_the_key_that_triggered_it_whatever_the_episode() -> None:
    _, triggered = posted(make, told(step=1))
    _, resolved = posted(make, told(step=9, state=AlertState.RESOLVED))
    assert resolved == {
        "routing_key": "R0UT1NG",
        "event_action": "resolve",
        "dedup_key": triggered["dedup_key"],
    }


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"rule": "stalled"}, id="another rule"),
        pytest.param({"labels": {}}, id="other labels"),
        pytest.param({"run": RunKey("math", "dapo")}, id="another run"),
        pytest.param({"run": RunKey("m" * 120, "r" * 128)}, id="names too long for a key"),
    ],
)
def test_other_alerts_are_other_incidents(changed: dict[str, Any]) -> None:
    _, usual = posted(make, told())
    _, other = posted(make, told(**changed))
    assert other["dedup_key"] != usual["dedup_key"]
    assert len(other["dedup_key"]) <= MAX_KEY_LENGTH


def test_a_warning_is_no_critical_incident_and_a_long_summary_is_cut() -> None:
    _, event = posted(make, told(severity=Severity.WARN, summary="x" * 2000, public_url=None))
    assert event["payload"]["severity"] == "warning"
    assert event["payload"]["summary"] == "x" * 1024
    assert event["links"] == []
