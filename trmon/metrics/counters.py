"""The service's own counters, by the names of the design's section on Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from trmon.domain.batches.quarantine import QuarantinePart
from trmon.domain.model.messages import WriteOutcome

INGEST_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLOSE_LAG_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)

STATUSES = (*(status.value for status in WriteOutcome), "invalid")
DROPPED = (
    *("queue_full", "spool_full", "spool_error", "damaged", "unread", "refused", "conflict", "unencodable"),
    *("scalar", "internal", "unplaced_scalar"),
)
"""Why clients of today lose messages, and why the service does."""
OUTCOMES = ("delivered", "retried", "muted", "held", "dead", "error")
PRUNED = ("reports", "events", "deliveries", "silences", "failures")

REDIS = ("publish", "listen", "read", "limits")
PART_HELP = {
    "trmon_queue_depth": "Operations that wait for the disk.",
    "trmon_disk_free_bytes": "Free space of the database's disk, where that is one of this machine.",
}
"""Gauges that ask a part of the service."""


class Counters:
    """What the service counts of itself; a registry of its own, so that two services in a process stay apart."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.reports = Counter(
            "trmon_reports", "Messages received, by what became of them.", ["status"], registry=self.registry
        )
        self.sequences = Counter(
            "trmon_sequences", "Sequences received, by decision.", ["decision"], registry=self.registry
        )
        self.ingest_seconds = Histogram(
            "trmon_ingest_seconds",
            "Time from a request's body to its durable answer.",
            buckets=INGEST_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "trmon_commit_seconds",
            "Time of one group commit.",
            buckets=INGEST_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.close_lag_seconds = Histogram(
            "trmon_close_lag_seconds",
            "Time from a batch's newest report to its close.",
            buckets=CLOSE_LAG_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.dropped = Counter(
            "trmon_dropped", "Messages lost by clients, or refused here, by reason.", ["reason"], registry=self.registry
        )
        self.decision_mismatch = Counter(
            "trmon_decision_mismatch",
            "Sequences whose decision the service could not reproduce under equal semantics.",
            registry=self.registry,
        )
        self.unreplayed = Counter(
            "trmon_unreplayed_reports",
            "Reports whose policy the service does not know, or cannot decide by without columns they lack.",
            registry=self.registry,
        )
        self.late = Counter(
            "trmon_late_reports", "Reports that came after their batch was closed.", registry=self.registry
        )
        self.quarantined = Counter(
            "trmon_quarantined",
            "Parts of runs that could not be processed and were set aside, by what they are; the log says why.",
            ["reason"],
            registry=self.registry,
        )
        self.worker_failures = Counter(
            "trmon_worker_failures",
            "Passes over runs that failed and are tried again; the log says why.",
            registry=self.registry,
        )
        self.delivery = Counter(
            "trmon_delivery",
            "Looks at notifications that were due, by outcome; one that is held counts at each.",
            ["outcome"],
            registry=self.registry,
        )
        self.rules_reload_failures = Counter(
            "trmon_rules_reload_failures",
            "Times that the changed file of rules could not be read; the former rules stayed.",
            registry=self.registry,
        )
        self.pruned = Counter(
            "trmon_pruned", "Rows deleted by retention, and its failures.", ["what"], registry=self.registry
        )
        self.redis_up = Gauge(
            "trmon_redis_up", "1 while Redis tells this process of others, 0 without it.", registry=self.registry
        )
        self.redis_failures = Counter(
            "trmon_redis_failures",
            "Times that Redis was away or hung, by what failed.",
            ["what"],
            registry=self.registry,
        )
        self._begin_at_zero()

    def about(self, *, version: str, page_url: str) -> None:
        """Say which version runs, and where people see it: dashboards link there."""
        info = Gauge(
            "trmon_info", "1; which version runs, and its page.", ["version", "page_url"], registry=self.registry
        )
        info.labels(version, page_url).set(1)

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Show what a function returns at each scrape, under a name of PART_HELP."""
        Gauge(name, PART_HELP[name], registry=self.registry).set_function(read)

    def _begin_at_zero(self) -> None:
        """Prometheus sees no increase in a series that begins at one: each begins at zero."""
        for counter, values in (
            (self.reports, STATUSES),
            (self.sequences, ("accepted", "rejected")),
            (self.dropped, DROPPED),
            (self.quarantined, [part.value for part in QuarantinePart]),
            (self.delivery, OUTCOMES),
            (self.pruned, PRUNED),
            (self.redis_failures, REDIS),
        ):
            for value in values:
                counter.labels(value)
