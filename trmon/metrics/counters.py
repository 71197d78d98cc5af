"""The service's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.messages import WriteOutcome
from trmon.worker.pass_changes import PassTally

INGEST_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLOSE_LAG_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)

DROPPED = (
    *("queue_full", "spool_full", "spool_error", "damaged", "unread", "refused", "conflict", "unencodable"),
    *("scalar", "closed", "internal", "unplaced_scalar", "other"),
)
"""Reasons for which clients and the service drop messages; those that are not known count as `other`."""
COMPONENT_GAUGES = {
    "trmon_queue_depth": "Number of queued write operations.",
    "trmon_disk_free_bytes": "Free space of the database's disk, if it is local.",
    "trmon_worker_beat_age_seconds": (
        "Time since the worker of this process made progress; of an API process in a fleet, since any worker did; "
        "infinite without one."
    ),
    "trmon_oldest_unprocessed_seconds": (
        "Age of the oldest report that no pass has processed, zero without one; reports of an open batch wait for its "
        "next step, or for `TRMON_GRACE_SECONDS`."
    ),
}
"""Gauges that read a component of the service at each scrape."""


class Counters:
    """The service's metrics, in a separate registry per service; implements trmon.worker.process.ProcessObserver."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        counter, per_quota = self._counter, ["project", "resource"]
        histogram, gauge = partial(Histogram, registry=self.registry), partial(Gauge, registry=self.registry)
        statuses = (*(status.value for status in WriteOutcome), "invalid")
        self.reports = counter("trmon_reports", "Received messages, by outcome.", status=statuses)
        self.sequences = counter(
            "trmon_sequences", "Received sequences, by decision.", decision=("accepted", "rejected")
        )
        self.ingest_seconds = histogram(
            "trmon_ingest_seconds",
            "Time from a request's body to its durable acknowledgement.",
            buckets=INGEST_BUCKETS_SECONDS,
        )
        self.commit_seconds = histogram(
            "trmon_commit_seconds", "Duration of a group commit.", buckets=INGEST_BUCKETS_SECONDS
        )
        self.close_lag_seconds = histogram(
            "trmon_close_lag_seconds",
            "Time from a batch's newest report to its close.",
            buckets=CLOSE_LAG_BUCKETS_SECONDS,
        )
        self.dropped = counter(
            "trmon_dropped", "Messages dropped by clients or by the service, by reason.", reason=DROPPED
        )
        self.decision_mismatch = counter(
            "trmon_decision_mismatch",
            "Sequences whose decision the service could not reproduce under equal semantics.",
        )
        self.unreplayed = counter(
            "trmon_unreplayed_reports",
            "Reports that could not be replayed, because the policy is unknown or columns are missing.",
        )
        self.late = counter("trmon_late_reports", "Reports received after their batch was closed.")
        self.quarantined = counter(
            "trmon_quarantined",
            "Quarantined parts of runs, by kind; see the log for the reason.",
            reason=[part.value for part in QuarantinePart],
        )
        self.worker_failures = counter(
            "trmon_worker_failures", "Failed passes over runs, which are retried; see the log for the reason."
        )
        self.worker_restarts = counter(
            "trmon_worker_restarts",
            "Ends of the embedded worker's process, which is started again; hung: killed after 30 s without progress.",
            reason=("hung", "exited"),
        )
        self.verdict_failures = counter(
            "trmon_verdict_failures",
            "Scrapes without verdicts, because the database could not be read; see the log for the reason.",
        )
        self.delivery = counter(
            "trmon_delivery",
            "Attempts to send due notifications, by outcome; a held notification counts at each attempt.",
            outcome=("delivered", "retried", "muted", "held", "dead", "error"),
        )
        self.rules_reload_failures = counter(
            "trmon_rules_reload_failures", "Failed reloads of the rules file; the previous rules stay active."
        )
        self.pruned = counter(
            "trmon_pruned",
            "Rows deleted by retention, and failures of it.",
            what=("reports", "events", "deliveries", "silences", "audit", "failures"),
        )
        self.lake = counter(
            "trmon_lake",
            "What moved to the lake, and failures of it: then nothing moves, and reports wait beyond their limits.",
            what=("attempts", "reports", "bytes", "deleted_runs", "merged_files", "failures"),
        )
        self.quota_refused = Counter(
            "trmon_quota_refused",
            "Messages refused because of a project's quota, by resource, and requests because of a caller's new runs; "
            "those above a rate are sent again.",
            per_quota,
            registry=self.registry,
        )
        self._quota_limit = gauge(
            "trmon_quota_limit", "Limits of projects: runs, report bytes, or reports a second.", per_quota
        )
        self._quota_used = gauge(
            "trmon_quota_used", "What limited projects have stored: runs or report bytes.", per_quota
        )
        self.loop_stalls = counter(
            "trmon_event_loop_stalls",
            "Times when the event loop was blocked for over 100 ms, by one request or by the machine.",
        )
        self.redis_up = gauge("trmon_redis_up", "1 while this process receives change notices from Redis, else 0.")
        self.redis_failures = counter(
            "trmon_redis_failures",
            "Failed Redis operations, by operation.",
            what=("publish", "listen", "read", "limits"),
        )

    def _counter(self, name: str, description: str, **values: Iterable[str]) -> Counter:
        """Register a counter and the values of its label, if it has one.

        Each series starts at zero, because Prometheus sees no increase in a series that starts at one.
        """
        counter = Counter(name, description, list(values), registry=self.registry)
        for value in chain.from_iterable(values.values()):
            counter.labels(value)
        return counter

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

    def pass_committed(self, tally: PassTally) -> None:
        """Count a pass that was committed."""
        for seconds in tally.close_lags_seconds:
            self.close_lag_seconds.observe(seconds)
        self.decision_mismatch.inc(tally.mismatches)
        self.unreplayed.inc(tally.unreplayed_reports)
        self.late.inc(tally.late_reports)
        for part, n in tally.quarantined.items():
            self.quarantined.labels(part.value).inc(n)
        if tally.unplaced_scalars:
            self.dropped.labels("unplaced_scalar").inc(tally.unplaced_scalars)

    def pass_failed(self, error: Exception) -> None:  # noqa: ARG002 - the log has the error
        """Count a pass that failed and will be retried."""
        self.worker_failures.inc()

    def worker_ended(self, *, is_hung: bool) -> None:
        """Count an end of the worker's process that nobody asked for."""
        self.worker_restarts.labels("hung" if is_hung else "exited").inc()
