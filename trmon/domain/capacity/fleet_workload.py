"""What trainers send: runs, ranks, steps and sequences, and the work per second that they bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from trmon.domain.capacity.station import Activity
from trmon.domain.model.errors import InvalidInput

HEARTBEAT_SECONDS = 30.0
"""How often each rank's client says that it is alive."""
SCRAPED_RUNS = 500
"""Default of TRMON_METRICS_MAX_RUNS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWorkload:
    """Active runs, each with ranks that report every step.

    Each rank sends `chunks` reports of `sequences` for each of the `updates` of a step. Errors: InvalidInput.
    """

    runs: int
    ranks: int
    step_seconds: float = 30.0
    sequences: int = 64
    chunks: int = 1
    updates: int = 1
    retention_days: float = 30.0
    scrape_seconds: float = 15.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise InvalidInput(field.name, f"must be a positive number, not {value}")

    @property
    def reports_per_second(self) -> float:
        """Reports per second of all runs."""
        return self.batches_per_second * self.ranks * self.chunks

    @property
    def batches_per_second(self) -> float:
        """Batches that close per second in all runs."""
        return self.runs * self.updates / self.step_seconds

    @property
    def connections(self) -> int:
        """Connections that trainers keep open."""
        return self.runs * self.ranks

    def rates(self) -> Mapping[Activity, float]:
        """Return the work per second that does not depend on the number of processes."""
        return {
            Activity.REPORT: self.reports_per_second,
            Activity.SEQUENCE: self.reports_per_second * self.sequences,
            Activity.BATCH: self.batches_per_second,
            Activity.HEARTBEAT: self.connections / HEARTBEAT_SECONDS,
            Activity.SCRAPED_RUN: min(self.runs, SCRAPED_RUNS) / self.scrape_seconds,
            Activity.RUN: float(self.runs),
        }
