"""The cause of an incident as named details, for receivers whose messages have fields."""

from __future__ import annotations

from trmon.domain.alerts.notification import Notification


def cause_details(notification: Notification) -> dict[str, str]:
    """Return the details of a notification's cause; empty if it is of no incident."""
    cause = notification.cause
    if cause is None:
        return {}
    known = {
        "finding": cause.title,
        "cause": cause.rule,
        "last_good_step": cause.last_good_step,
        "remedy": cause.remedy,
        "options": ", ".join(f"{name}={value}" for name, value in cause.options.items()) or None,
        "runbook_url": cause.runbook_url,
    }
    return {name: str(value) for name, value in known.items() if value is not None}
