"""A notification: its content, and its form in the outbox."""

from __future__ import annotations

import json

import msgspec
from msgspec import structs

from tests.domain.alerts.alert_builders import notification_of
from trmon.domain.alerts.notification import Flapping, Notification
from trmon.domain.alerts.transitions import TransitionReason


def test_the_stored_form_has_the_content_of_the_transition() -> None:
    stored = json.loads(msgspec.json.encode(notification_of(public_url="https://trmon.example/")))
    assert stored == {
        "status": "firing",
        "reason": TransitionReason.FIRED.value,
        "alert": {
            "identity": "1/high",
            "rule": "high",
            "severity": "page",
            "labels": {"team": "rl"},
            "since_at": 10.0,
            "at": 20.0,
            "since_step": 7,
        },
        "run": {"project": "math", "run": "grpo", "owner": None, "tags": [], "mode": "observe", "attempt_id": 3},
        "value": "inf",
        "threshold": 1.0,
        "summary": "x is inf",
        "step": 7,
        "update": None,
        "runbook": "look",
        "url": "https://trmon.example/runs/math/grpo?step=7",
    }


def test_a_stored_notification_is_read_back_unchanged() -> None:
    notification = structs.replace(
        notification_of(), flapping=Flapping(transitions=6, within_steps=100), told_before=2, key="hook:x"
    )
    assert msgspec.json.decode(msgspec.json.encode(notification), type=Notification) == notification


def test_fields_of_a_later_version_are_ignored() -> None:
    document = msgspec.to_builtins(notification_of()) | {"since_version": 3}
    assert msgspec.convert(document, Notification) == notification_of()
