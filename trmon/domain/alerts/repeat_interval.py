"""The repeat interval: after how many seconds a notification of a firing alert is sent again."""

from __future__ import annotations

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.model.severity import Severity


def repeat_interval_seconds(
    delivery: Delivery, alert: Alert | None, *, remind_seconds: float, receiver_repeat_seconds: float | None
) -> float | None:
    """Return the wait until a delivery is sent again while its alert fires, or None if it is not.

    Args: alert: the alert of the delivery, None if it ended; remind_seconds: the interval for pages;
    receiver_repeat_seconds: the interval for all alerts of a receiver that drops those not sent again.
    """
    if delivery.told_state is not AlertState.FIRING or alert is None or alert.state is not AlertState.FIRING:
        return None
    return receiver_repeat_seconds or (remind_seconds if alert.severity is Severity.PAGE else None)
