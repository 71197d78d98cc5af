"""Quotas: limits on what one project stores and sends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class QuotaResource(Enum):
    """What a quota limits."""

    RUNS = "runs"
    BYTES = "bytes"
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of a project; None is no limit.

    Args: max_runs: runs, archived ones included; max_bytes: stored report bytes; reports_per_second: for each API
    process.
    """

    project: str
    max_runs: int | None = None
    max_bytes: int | None = None
    reports_per_second: float | None = None

    def limits(self) -> dict[QuotaResource, float]:
        """Return the limits that are set, by resource."""
        limits = {
            QuotaResource.RUNS: self.max_runs,
            QuotaResource.BYTES: self.max_bytes,
            QuotaResource.RATE: self.reports_per_second,
        }
        return {resource: limit for resource, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """What a project has stored: the names of its runs, and the bytes of its reports."""

    runs: frozenset[str]
    report_bytes: int
