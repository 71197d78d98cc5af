"""Timestamps as PagerDuty and Alertmanager read them."""

from __future__ import annotations

from datetime import datetime, timezone


def rfc3339(at: float) -> str:
    """Return a time, in seconds since the epoch, in the format of RFC 3339."""
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds")
