"""A checkup: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class HealthLevel(Enum):
    """How something is: well; to be looked at some day; or in the way of what the service promises."""

    WELL = "ok"
    DOUBTFUL = "warn"
    ILL = "fail"


@dataclass(frozen=True, slots=True)
class HealthCheckResult:
    """One thing that was looked at; `advice` is empty where all is well."""

    what: str
    health: HealthLevel
    found: str
    advice: str = ""


def healthy_result(what: str, found: str) -> HealthCheckResult:
    """Return that something is as it should be."""
    return HealthCheckResult(what, HealthLevel.WELL, found)


def warning_result(what: str, found: str, *, advice: str) -> HealthCheckResult:
    """Return that something should be looked at."""
    return HealthCheckResult(what, HealthLevel.DOUBTFUL, found, advice)


def failing_result(what: str, found: str, *, advice: str) -> HealthCheckResult:
    """Return that something keeps the service from what it promises."""
    return HealthCheckResult(what, HealthLevel.ILL, found, advice)
