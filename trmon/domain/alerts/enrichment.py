"""Enrichment: completes a notification with what is true of its run when it is sent."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.delivery_context import DeliveryContext
from trmon.domain.alerts.flapping import MAX_TRANSITIONS, WITHIN_STEPS, FlapState
from trmon.domain.alerts.muting import alert_mute_reason
from trmon.domain.alerts.notification import FiringAlert, Flapping, Notification
from trmon.domain.model.severity import Severity


def enrich_notification(delivery: Delivery, context: DeliveryContext, *, now: float) -> Notification:
    """Return the notification of a delivery with all firing alerts of the run, its current owner, and flapping."""
    notification = delivery.notification
    is_first_told = notification.is_firing and context.ends_ill(delivery)
    flaps = context.flap_state_of(delivery) is FlapState.STARTED
    return structs.replace(
        notification,
        key=delivery.key,
        run=structs.replace(notification.run, owner=context.run.owner),
        firing=_firing_alerts(context, now=now),
        flapping=Flapping(transitions=MAX_TRANSITIONS, within_steps=WITHIN_STEPS) if flaps else None,
        told_before=delivery.rounds,
        ended_ill=is_first_told or notification.is_end_with_run,
        alert=structs.replace(notification.alert, severity=Severity.WARN) if is_first_told else notification.alert,
    )


def _firing_alerts(context: DeliveryContext, *, now: float) -> tuple[FiringAlert, ...]:
    return tuple(
        FiringAlert(
            rule=alert.rule,
            severity=alert.severity,
            since_step=alert.since_step,
            summary=alert.summary,
            acknowledged=alert.episode in context.acked,
            muted=reason.value if (reason := alert_mute_reason(alert, context, now=now)) else None,
        )
        for alert in context.firing
    )
