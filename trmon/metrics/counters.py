"""The service's own metrics, and the observer that adds up the worker's passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.messages import WriteOutcome
from trmon.worker.pass_changes import PassTally

INGEST_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLOSE_LAG_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)

STATUSES = (*(status.value for status in WriteOutcome), "invalid")
DROPPED = (
    *("queue_full", "spool_full", "spool_error", "damaged", "unread", "refused", "conflict", "unencodable"),
    *("scalar", "internal", "unplaced_scalar"),
)
"""Reasons for which current clients and the service drop messages."""
OUTCOMES = ("delivered", "retried", "muted", "held", "dead", "error")
PRUNED = ("reports", "events", "deliveries", "silences", "audit", "failures")
LAKE = ("attempts", "reports", "bytes", "deleted_runs", "merged_files", "failures")

REDIS_OPERATIONS = ("publish", "listen", "read", "limits")
COMPONENT_GAUGES = {
    "trmon_queue_depth": "Number of queued write operations.",
    "trmon_disk_free_bytes": "Free space of the database's disk, if it is local.",
}
"""Gauges that read a component of the service at each scrape."""


class Counters:
    """The service's metrics, in a separate registry per service."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.reports = Counter("trmon_reports", "Received messages, by outcome.", ["status"], registry=self.registry)
        self.sequences = Counter(
            "trmon_sequences", "Received sequences, by decision.", ["decision"], registry=self.registry
        )
        self.ingest_seconds = Histogram(
            "trmon_ingest_seconds",
            "Time from a request's body to its durable acknowledgement.",
            buckets=INGEST_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "trmon_commit_seconds",
            "Duration of a group commit.",
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
            "trmon_dropped",
            "Messages dropped by clients or by the service, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.decision_mismatch = Counter(
            "trmon_decision_mismatch",
            "Sequences whose decision the service could not reproduce under equal semantics.",
            registry=self.registry,
        )
        self.unreplayed = Counter(
            "trmon_unreplayed_reports",
            "Reports that could not be replayed, because the policy is unknown or columns are missing.",
            registry=self.registry,
        )
        self.late = Counter(
            "trmon_late_reports", "Reports received after their batch was closed.", registry=self.registry
        )
        self.quarantined = Counter(
            "trmon_quarantined",
            "Quarantined parts of runs, by kind; see the log for the reason.",
            ["reason"],
            registry=self.registry,
        )
        self.worker_failures = Counter(
            "trmon_worker_failures",
            "Failed passes over runs, which are retried; see the log for the reason.",
            registry=self.registry,
        )
        self.verdict_failures = Counter(
            "trmon_verdict_failures",
            "Scrapes without verdicts, because the database could not be read; see the log for the reason.",
            registry=self.registry,
        )
        self.delivery = Counter(
            "trmon_delivery",
            "Attempts to send due notifications, by outcome; a held notification counts at each attempt.",
            ["outcome"],
            registry=self.registry,
        )
        self.rules_reload_failures = Counter(
            "trmon_rules_reload_failures",
            "Failed reloads of the rules file; the previous rules stay active.",
            registry=self.registry,
        )
        self.pruned = Counter(
            "trmon_pruned", "Rows deleted by retention, and failures of it.", ["what"], registry=self.registry
        )
        self.lake = Counter(
            "trmon_lake",
            "What moved to the lake, and failures of it: then nothing moves, and reports wait beyond their limits.",
            ["what"],
            registry=self.registry,
        )
        self.quota_refused = Counter(
            "trmon_quota_refused",
            "Messages refused because of a project's quota, by resource; those above the rate are sent again.",
            ["project", "resource"],
            registry=self.registry,
        )
        self._quota_limit = Gauge(
            "trmon_quota_limit",
            "Limits of projects: runs, report bytes, or reports a second.",
            ["project", "resource"],
            registry=self.registry,
        )
        self._quota_used = Gauge(
            "trmon_quota_used",
            "What limited projects have stored: runs or report bytes.",
            ["project", "resource"],
            registry=self.registry,
        )
        self.redis_up = Gauge(
            "trmon_redis_up", "1 while this process receives change notices from Redis, else 0.", registry=self.registry
        )
        self.redis_failures = Counter(
            "trmon_redis_failures",
            "Failed Redis operations, by operation.",
            ["what"],
            registry=self.registry,
        )
        self._initialize_labels()

    def set_info(self, *, version: str, page_url: str) -> None:
        """Expose the version and the page's URL, which dashboards link to."""
        info = Gauge(
            "trmon_info",
            "Always 1; the running version, and the URL of its page.",
            ["version", "page_url"],
            registry=self.registry,
        )
        info.labels(version, page_url).set(1)

    def set_quotas(self, quotas: Mapping[tuple[str, str], tuple[float, float | None]]) -> None:
        """Replace the series of quotas: limit and use, if known, by project and resource."""
        self._quota_limit.clear()
        self._quota_used.clear()
        for (project, resource), (limit, used) in quotas.items():
            self.quota_refused.labels(project, resource)
            self._quota_limit.labels(project, resource).set(limit)
            if used is not None:
                self._quota_used.labels(project, resource).set(used)

    def add_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Expose the value of a function at each scrape. Args: name: one of COMPONENT_GAUGES."""
        Gauge(name, COMPONENT_GAUGES[name], registry=self.registry).set_function(read)

    def _initialize_labels(self) -> None:
        """Start each series at zero, because Prometheus sees no increase in a series that starts at one."""
        for counter, values in (
            (self.reports, STATUSES),
            (self.sequences, ("accepted", "rejected")),
            (self.dropped, DROPPED),
            (self.quarantined, [part.value for part in QuarantinePart]),
            (self.delivery, OUTCOMES),
            (self.pruned, PRUNED),
            (self.lake, LAKE),
            (self.redis_failures, REDIS_OPERATIONS),
        ):
            for value in values:
                counter.labels(value)


class CountingObserver:
    """Adds up the worker's tallies; implements trmon.worker.scheduler.PassObserver."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def pass_committed(self, tally: PassTally) -> None:
        """Count a pass that was committed."""
        for seconds in tally.close_lags_seconds:
            self._counters.close_lag_seconds.observe(seconds)
        self._counters.decision_mismatch.inc(tally.mismatches)
        self._counters.unreplayed.inc(tally.unreplayed_reports)
        self._counters.late.inc(tally.late_reports)
        for part, n in tally.quarantined.items():
            self._counters.quarantined.labels(part.value).inc(n)
        if tally.unplaced_scalars:
            self._counters.dropped.labels("unplaced_scalar").inc(tally.unplaced_scalars)

    def pass_failed(self, error: Exception) -> None:  # noqa: ARG002 - the log has the error
        """Count a pass that failed and will be retried."""
        self._counters.worker_failures.inc()
