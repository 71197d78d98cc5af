"""PagerDuty, against a local server: one incident per alert, triggered and resolved under one key."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.notify.posting import notification, posted
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity
from trmon.notify.pagerduty import MAX_KEY_LENGTH, PagerDuty
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult

STEP = "https://trmon.example/runs/math/grpo?step=7"
make = partial(PagerDuty, routing_key="R0UT1NG")


def test_a_firing_alert_triggers_an_incident() -> None:
    result, event = posted(make, notification())
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert (event["routing_key"], event["event_action"]) == ("R0UT1NG", "trigger")
    assert event["dedup_key"] == "trmon:math/grpo:mask_rate:team=rl"
    assert event["links"] == [
        {"href": "https://trmon.example/runs/math/grpo?step=7", "text": "grpo at step 7"},
        {"href": f"{STEP}&action=acknowledge&alert=1%2Fmask_rate", "text": "Acknowledge"},
        {"href": f"{STEP}&action=silence&alert=1%2Fmask_rate", "text": "Silence"},
    ]
    assert event["payload"] == {
        "summary": "math/grpo: <!channel> & more",
        "severity": "critical",
        "source": "math/grpo",
        "class": "mask_rate",
        "timestamp": "2027-01-15T08:00:00.000+00:00",
        "custom_details": {
            "team": "rl",
            "state": "firing",
            "value": 0.75,
            "threshold": 0.5,
            "step": 7,
            "owner": "ana",
            "do": "Find the drift first.",
        },
    }


def test_a_resolved_alert_uses_the_key_of_the_trigger_in_any_episode() -> None:
    _, triggered = posted(make, notification(step=1))
    _, resolved = posted(make, notification(step=9, state=AlertState.RESOLVED))
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
def test_other_alerts_have_other_keys(changed: dict[str, Any]) -> None:
    _, first = posted(make, notification())
    _, other = posted(make, notification(**changed))
    assert other["dedup_key"] != first["dedup_key"]
    assert len(other["dedup_key"]) <= MAX_KEY_LENGTH


def test_a_warning_has_its_severity_and_a_long_summary_is_cut() -> None:
    _, event = posted(make, notification(severity=Severity.WARN, summary="x" * 2000, public_url=None))
    assert event["payload"]["severity"] == "warning"
    assert event["payload"]["summary"] == "x" * 1024
    assert event["links"] == []
