"""The delivery that resolves an alert when its run is deleted or renamed."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import Notification
from trmon.domain.alerts.transitions import TransitionReason


def closing_delivery(fired: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    """Return the delivery that resolves an alert for the receiver of `fired`, under the run's name in it.

    It has no run, so that it outlives the run's rows, and keeps its episode, so that it is sent after `fired`.
    Args: reason: DELETED or RENAMED.
    """
    cause = f"{reason.name.lower()}:{fired.notification.run.run}"
    return Delivery(
        id=0,
        receiver=fired.receiver,
        dedup_key=f"{fired.receiver}:{fired.episode}:{cause}:{AlertState.RESOLVED.value}",
        notification=_resolved(fired.notification, reason=reason, now=now),
        due_at=now,
        made_at=now,
        episode=fired.episode,
        told_state=AlertState.RESOLVED,
    )


def _resolved(notification: Notification, *, reason: TransitionReason, now: float) -> Notification:
    alert = structs.replace(notification.alert, at=now)
    return structs.replace(notification, status=AlertState.RESOLVED, reason=reason.value, alert=alert, url=None)
