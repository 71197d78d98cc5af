"""How urgent an alert is."""

from __future__ import annotations

from enum import Enum


class Severity(Enum):
    """What an alert asks for: act now (page), look soon (warn), know (info)."""

    PAGE = "page"
    WARN = "warn"
    INFO = "info"
