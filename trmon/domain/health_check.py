"""Health checks: the level, the detail and the advice of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

HUNG_SECONDS = 30.0
"""A process that has made no progress for so long is hung: no step of a pass takes that long."""


class HealthLevel(Enum):
    """The result level: healthy, needs attention, or prevents the service from working as documented."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class HealthCheckResult:
    """The result of one health check; `advice` is empty if the level is OK."""

    name: str
    level: HealthLevel
    detail: str
    advice: str = ""


def healthy_result(name: str, detail: str) -> HealthCheckResult:
    """Return the result of a check that passed."""
    return HealthCheckResult(name, HealthLevel.OK, detail)


def warning_result(name: str, detail: str, *, advice: str) -> HealthCheckResult:
    """Return the result of a check that needs attention."""
    return HealthCheckResult(name, HealthLevel.WARN, detail, advice)


def failing_result(name: str, detail: str, *, advice: str) -> HealthCheckResult:
    """Return the result of a check that failed."""
    return HealthCheckResult(name, HealthLevel.FAIL, detail, advice)
