"""What is said when a delivery is told: its own transition, and what else is true of the run by then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trmon.domain.alerts.alert import AlertState, Delivery
from trmon.domain.alerts.flapping import MAX_TRANSITIONS, WITHIN_STEPS, FlapState
from trmon.domain.alerts.muting import DeliveryContext, mute_reason_of_alert
from trmon.domain.model.severity import Severity


def present_delivery(delivery: Delivery, delivery_context: DeliveryContext, *, now: float) -> Delivery:
    """Return a delivery as it is told now: with everything that fires on the run, its owner, and whether it flaps."""
    flaps = delivery_context.flap(delivery) is FlapState.BEGINS
    added: dict[str, Any] = {
        "firing": _firing(delivery_context, now=now),
        "flapping": {"transitions": MAX_TRANSITIONS, "within_steps": WITHIN_STEPS} if flaps else None,
        "told_before": delivery.rounds,
    }
    if "run" in delivery.body:
        added["run"] = delivery.body["run"] | {"owner": delivery_context.run.owner}
    return replace(delivery, body=delivery.body | added)


def resend_after_seconds(
    delivery: Delivery, delivery_context: DeliveryContext, *, remind_seconds: float, repeat_seconds: float | None
) -> float | None:
    """Return the wait until a firing alert is told again: a page to people, any to a receiver that forgets.

    Args: remind_seconds: for pages; repeat_seconds: for every alert, of receivers that forget.
    """
    alert = delivery_context.alert(delivery.episode)
    if delivery.told_state is not AlertState.FIRING or alert is None or alert.state is not AlertState.FIRING:
        return None
    return repeat_seconds or (remind_seconds if alert.severity is Severity.PAGE else None)


def _firing(delivery_context: DeliveryContext, *, now: float) -> list[dict[str, object]]:
    return [
        {
            "rule": alert.rule,
            "severity": alert.severity.value,
            "since_step": alert.step,
            "summary": alert.summary,
            "acknowledged": alert.episode in delivery_context.acked,
            "muted": reason.value if (reason := mute_reason_of_alert(alert, delivery_context, now=now)) else None,
        }
        for alert in delivery_context.firing
    ]
