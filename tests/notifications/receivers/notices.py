"""Deliveries as the domain makes them, and receivers at a local peer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.domain.stages.closings import pass_context
from tests.fixtures.receiver import WebhookServer
from trmon.domain.alerts.alert import Alert, AlertState, Delivery
from trmon.domain.alerts.deliveries import deliveries_of
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, transition_event
from trmon.domain.model.identity import RunKey
from trmon.domain.model.severity import Severity
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.receiver import DeliveryResult, Receiver

ALERT = Alert(
    identity="1/mask_rate",
    run_id=1,
    rule="mask_rate",
    severity=Severity.PAGE,
    state=AlertState.FIRING,
    attempt_id=3,
    step=7,
    update=None,
    since_at=1_800_000_000.0,
    updated_at=1_800_000_060.0,
    value=0.75,
    threshold=0.5,
    summary="math/grpo: <!channel> & more",
    labels={"team": "rl"},
    runbook="Find the drift first.",
)


REASONS = {AlertState.FIRING: TransitionReason.FIRED, AlertState.RESOLVED: TransitionReason.RESOLVED}


def told(*, run: RunKey | None = None, public_url: str | None = "https://trmon.example", **changed: Any) -> Delivery:
    """Return what a receiver is told of an alert; fields of Alert by name."""
    alert = replace(ALERT, **changed)
    context = pass_context(public_url=public_url)
    context = replace(context, run=replace(context.run, key=run or context.run.key, owner="ana"))
    moved = Transition(track=AlertTrack(), reason=REASONS[alert.state], alert=alert, event=transition_event(alert))
    [delivery] = deliveries_of(moved, context)
    return delivery


def posted(make: Callable[[HttpPost], Receiver], *deliveries: Delivery, now: float = 0.0) -> tuple[DeliveryResult, Any]:
    """Deliver to a local server; return the result and the JSON that came."""
    with WebhookServer() as server:
        receiver = make(HttpPost(server.url, allow_hosts=frozenset({"127.0.0.1"})))
        result = receiver.deliver(deliveries, now=now)
        receiver.close()
        [request] = server.posted
    assert request.headers["Content-Type"] == "application/json"
    return result, json.loads(request.body)
