"""Severities of alerts."""

from __future__ import annotations

from enum import Enum


class Severity(Enum):
    """The urgency of an alert: act now (page), investigate soon (warn), for information (info)."""

    PAGE = "page"
    WARN = "warn"
    INFO = "info"
