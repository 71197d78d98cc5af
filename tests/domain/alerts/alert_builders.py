"""Builds alerts, transitions, notifications and deliveries."""

from __future__ import annotations

import math
from typing import Any

from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState, AlertTrack, Transition, TransitionReason, transition_event
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import Notification, build_notification
from trmon.domain.runs.run import Run
from trmon.domain.severity import Severity

ALERT = Alert(
    identity="1/high",
    run_id=1,
    rule="high",
    severity=Severity.PAGE,
    state=AlertState.FIRING,
    attempt_id=3,
    step=7,
    update=None,
    since_at=10.0,
    updated_at=20.0,
    value=math.inf,
    threshold=1.0,
    summary="x is inf",
    labels={"team": "rl"},
    runbook="look",
)
REASONS = {AlertState.FIRING: TransitionReason.FIRED, AlertState.RESOLVED: TransitionReason.RESOLVED}


def transition_to(alert: Alert = ALERT, *, silence_started_at: float | None = None) -> Transition:
    event = transition_event(alert, silence_started_at=silence_started_at)
    return Transition(track=AlertTrack(alert=alert), reason=REASONS[alert.state], alert=alert, event=event)


def notification_of(
    alert: Alert = ALERT, *, run: Run | None = None, public_url: str | None = "https://trmon.example"
) -> Notification:
    run = run or MemoryLog().stored_run
    return build_notification(
        alert, transition_event(alert), reason=REASONS[alert.state], run=run, public_url=public_url
    )


def delivery_of(alert: Alert = ALERT, **fields: Any) -> Delivery:
    """Return a delivery to "hook" of an alert's newest transition; other fields of Delivery by name."""
    usual: dict[str, Any] = {
        "id": 1,
        "receiver": "hook",
        "dedup_key": "x",
        "notification": notification_of(alert),
        "run_id": alert.run_id,
        "episode": alert.episode,
        "told_state": alert.state,
    }
    return Delivery(**usual | fields)
