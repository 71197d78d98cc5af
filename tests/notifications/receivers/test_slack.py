"""Slack, against a real server: one message, and nothing in it that Slack would read as a command."""

from __future__ import annotations

from dataclasses import replace

from tests.notifications.receivers.notices import posted, told
from trmon.domain.alerts.alert import AlertState
from trmon.domain.model.severity import Severity
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult
from trmon.notifications.receivers.slack import Slack


def test_a_message_says_what_what_to_do_and_where_to_look() -> None:
    result, body = posted(Slack, told())
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert body["text"].splitlines() == [
        ":rotating_light: *firing* math/grpo: &lt;!channel&gt; &amp; more",
        "Find the drift first.",
        "<https://trmon.example/runs/math/grpo?step=7|grpo at step 7>",
    ]


def test_a_resolved_alert_needs_no_advice() -> None:
    _, body = posted(Slack, told(state=AlertState.RESOLVED, summary="high", runbook="Do."))
    assert body["text"].splitlines()[:2] == [
        ":white_check_mark: *resolved* high",
        "Over: the condition has been clear for long enough.",
    ]
    assert "Do." not in body["text"]


def test_a_message_says_what_else_fires_that_it_flaps_and_that_it_was_told_before() -> None:
    delivery = told(summary="x")
    known = {
        "firing": [{"rule": "mask_rate"}, {"rule": "stalled"}, {"rule": "variance_blowup", "muted": "a cause fires"}],
        "flapping": {"transitions": 6, "within_steps": 100},
        "told_before": 1,
    }
    _, body = posted(Slack, replace(delivery, body=delivery.body | known))
    assert body["text"].splitlines()[:4] == [
        ":rotating_light: *still firing* x",
        "It flaps: 6 changes within 100 steps. No more of it until it settles.",
        "Find the drift first.",
        "Also firing: stalled, variance_blowup (muted)",
    ]


def test_alerts_that_are_due_together_are_lines_of_one_message() -> None:
    known = {"firing": [{"rule": "mask_rate"}, {"rule": "crashed"}, {"rule": "stalled"}]}
    first, second = told(summary="x"), told(rule="crashed", severity=Severity.WARN, summary="y", runbook="", step=9)
    _, body = posted(Slack, *(replace(delivery, body=delivery.body | known) for delivery in (first, second)))
    assert body["text"].splitlines() == [
        ":rotating_light: *firing* x",
        "Find the drift first.",
        ":warning: *firing* y",
        "Also firing: stalled",
        "<https://trmon.example/runs/math/grpo?step=9|grpo at step 9>",
    ]


def test_without_an_url_of_its_own_the_service_links_to_nothing() -> None:
    _, body = posted(Slack, told(public_url=None))
    assert "://" not in body["text"]
