"""The service's own counters, by the names of the design's section on Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

INGEST_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLOSE_LAG_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Counters:
    """What the service counts of itself; a registry of its own, so that two services in a process stay apart."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
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
        self.worker_failures = Counter(
            "trmon_worker_failures",
            "Passes over runs that failed and are tried again.",
            ["error"],
            registry=self.registry,
        )
        self.delivery = Counter(
            "trmon_delivery", "Tries to deliver a notification, by outcome.", ["outcome"], registry=self.registry
        )
        self.rules_reload_failures = Counter(
            "trmon_rules_reload_failures",
            "Times that the changed file of rules could not be read; the former rules stayed.",
            registry=self.registry,
        )
        self.pruned = Counter(
            "trmon_pruned", "Rows deleted by retention, and its failures.", ["what"], registry=self.registry
        )

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Show what a function returns at each scrape."""
        Gauge(name, about, registry=self.registry).set_function(read)
