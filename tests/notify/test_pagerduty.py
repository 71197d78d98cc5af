"""PagerDuty, against a local server: one incident per alert, triggered and resolved under one key."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.notify.posting import notification, posted
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.notify.pagerduty import MAX_KEY_LENGTH, PagerDuty
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult

make = partial(PagerDuty, routing_key="R0UT1NG")


def test_an_event_has_the_routing_key_and_resolves_under_the_key_of_the_trigger_in_any_episode() -> None:
    result, triggered = posted(make, notification(step=1))
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert (triggered["routing_key"], triggered["event_action"]) == ("R0UT1NG", "trigger")
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


def test_a_long_summary_is_cut() -> None:
    _, event = posted(make, notification(summary="x" * 2000))
    assert event["payload"]["summary"] == "x" * 1024
