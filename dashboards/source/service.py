"""The dashboard *trmon itself*: whether reports arrive, batches close and notifications are sent."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.source.dashboard import dashboard, page_link, restart_mark
from dashboards.source.panels import ACT, HEALTHY, WATCH, Step, chart, number, stacked
from dashboards.source.promql import own, quantile, rate

SOME: list[Step] = [(None, HEALTHY), (1, WATCH)]
ANY: list[Step] = [(None, HEALTHY), (1, ACT)]
GIB = 2**30
ROOM: list[Step] = [(None, ACT), (GIB, WATCH), (10 * GIB, HEALTHY)]


def service() -> Dashboard:
    made = dashboard(
        "trmon-service",
        "trmon / trmon itself",
        "Whether reports arrive, batches close and notifications are sent, and what trmon uses of its machines.",
        chosen=(),
        rows={"": _numbers(), "Reports": _reports(), "Worker and notifications": _worker(), "The machine": _machine()},
        collapsed={"The machine"},
    ).link(page_link("The page", "/"))
    return made.annotation(restart_mark())


def _numbers() -> list[stat.Panel]:
    return [
        number("Scraped", "Instances that respond to scrapes.", f"sum({own('up')})"),
        decision_mismatches(),
        number(
            "Lost messages",
            "Messages that clients lost or the service refused in the time range.",
            f"sum(increase({own('trmon_dropped_total')}[$__range]))",
            steps=SOME,
        ),
        number(
            "Untold alerts",
            "Notifications that failed after the last attempt in the time range.",
            f"sum(increase({own('trmon_delivery_total', outcome='dead')}[$__range]))",
            steps=ANY,
        ),
        number(
            "Runs not shown",
            "Active runs that /metrics omits, above TRMON_METRICS_MAX_RUNS.",
            f"max({own('trmon_runs_omitted')})",
            steps=SOME,
        ),
        number(
            "Free disk",
            "Free space on the database's disk.",
            f"min({own('trmon_disk_free_bytes')})",
            unit="bytes",
            steps=ROOM,
        ),
    ]


def decision_mismatches(*, width: int = 4) -> stat.Panel:
    """Return the number of decisions that the service could not reproduce."""
    return number(
        "Decision mismatches",
        "Sequences whose decision could not be reproduced in the time range; any is a defect.",
        f"sum(increase({own('trmon_decision_mismatch_total')}[$__range]))",
        steps=ANY,
        width=width,
    )


def _reports() -> list[timeseries.Panel]:
    return [
        stacked(
            "Messages per second",
            "Messages received, by outcome; duplicates are harmless repeats after an outage.",
            (rate(own("trmon_reports_total"), by="status"), "{{status}}"),
            unit="cps",
        ),
        _latency("Time to acknowledge", "From the request body to the response, once on disk.", "trmon_ingest_seconds"),
        _latency("Time of a group commit", "One transaction for all waiting operations.", "trmon_commit_seconds"),
        chart(
            "Operations that wait for the disk",
            "At 4096 the service answers 429 and clients wait, then spool.",
            (f"sum by (instance) ({own('trmon_queue_depth')})", "{{instance}}"),
        ),
        stacked(
            "Lost messages per second, by reason",
            "Messages that clients report as lost, and messages that the service refused.",
            (rate(own("trmon_dropped_total"), by="reason"), "{{reason}}"),
            unit="cps",
        ),
        chart(
            "Reports that were late or could not be replayed",
            "Late: received after their batch closed. Not replayed: the service does not know the policy.",
            (f"sum(rate({own('trmon_late_reports_total')}[$__rate_interval]))", "late"),
            (f"sum(rate({own('trmon_unreplayed_reports_total')}[$__rate_interval]))", "not replayed"),
            unit="cps",
        ),
    ]


def _latency(title: str, about: str, histogram: str) -> timeseries.Panel:
    queries = [(quantile(q, histogram), f"{100 * q:g} %") for q in (0.5, 0.95, 0.99)]
    return chart(title, f"{about} Median, 95th and 99th percentile.", *queries, unit="s")


def _worker() -> list[timeseries.Panel]:
    return [
        _latency(
            "Close lag", "From a batch's newest report to its close; late ranks included.", "trmon_close_lag_seconds"
        ),
        chart(
            "Judging delay",
            "Since a worker made progress, and the age of the oldest report that no pass has processed.",
            (f"max by (instance) ({own('trmon_worker_beat_age_seconds')})", "{{instance}}: progress"),
            (f"max({own('trmon_oldest_unprocessed_seconds')})", "oldest report"),
            unit="s",
        ),
        chart(
            "Failed passes and decision mismatches",
            "A failed pass over a run is retried; a decision that cannot be reproduced is a defect.",
            (f"sum(rate({own('trmon_worker_failures_total')}[$__rate_interval]))", "failed passes"),
            (f"sum(rate({own('trmon_decision_mismatch_total')}[$__rate_interval]))", "mismatches"),
            unit="cps",
        ),
        stacked(
            "Notifications per second, by outcome",
            "Attempts to deliver an alert to a receiver; dead means given up.",
            (rate(own("trmon_delivery_total"), by="outcome"), "{{outcome}}"),
            unit="cps",
        ),
    ]


def _machine() -> list[timeseries.Panel]:
    return [
        chart(
            "CPU",
            "CPU time of each instance, in seconds per second.",
            (f"rate({own('process_cpu_seconds_total')}[$__rate_interval])", "{{instance}}"),
            width=6,
        ),
        chart(
            "Memory",
            "Resident memory of each instance.",
            (f"max by (instance) ({own('process_resident_memory_bytes')})", "{{instance}}"),
            unit="bytes",
            width=6,
        ),
        chart(
            "Free disk",
            "Free space on the database's disk, as seen by each instance.",
            (f"min by (instance) ({own('trmon_disk_free_bytes')})", "{{instance}}"),
            unit="bytes",
            width=6,
        ),
        chart(
            "Rows pruned per second",
            "Rows that retention deletes, and how often it fails.",
            (rate(own("trmon_pruned_total"), by="what"), "{{what}}"),
            unit="cps",
            width=6,
        ),
    ]
