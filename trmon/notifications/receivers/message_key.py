"""The idempotency key of a message."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from trmon.domain.alerts.notification import Notification


def message_key(notifications: Sequence[Notification]) -> str:
    """Return the idempotency key of a message: a retry of the same deliveries repeats it."""
    if len(notifications) == 1:
        return notifications[0].key
    keys = "\n".join(sorted(notification.key for notification in notifications))
    return f"group:{hashlib.sha256(keys.encode()).hexdigest()}"
