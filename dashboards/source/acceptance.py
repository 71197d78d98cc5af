"""*Acceptance and trmon itself*: what the policies reject, and whether trmon can be relied upon."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from dashboards.source.bands import ACT, HEALTHY, WATCH, Step, band
from dashboards.source.dashboard import dashboard, page_link
from dashboards.source.panels import PLAIN, chart, number, rows, stacked
from dashboards.source.promql import active_mask_rate, own, per_run, quantile, rate, runs
from dashboards.source.variables import several_runs

SOME: list[Step] = [(None, HEALTHY), (1, WATCH)]
ANY: list[Step] = [(None, HEALTHY), (1, ACT)]
GIB = 2**30
ROOM: list[Step] = [(None, ACT), (GIB, WATCH), (10 * GIB, HEALTHY)]
REJECTED = per_run(runs("trmon_mask_rate"), "policy")
BOUND = per_run(runs("trmon_threshold"), "policy", "statistic", "pair", "where", "bound")


def acceptance() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "trmon-acceptance",
        "trmon / Acceptance and trmon itself",
        "What the policies reject, and whether trmon itself can be relied upon.",
        chosen=several_runs(),
        rows={
            "": _numbers(),
            "What is accepted": _accepted(),
            "Reports": _reports(),
            "The worker and those it tells": _worker(),
            "The machine": _machine(),
        },
    ).link(page_link("The page", "/"))


def _numbers() -> list[stat.Panel]:
    return [
        number("Scraped", "Instances that answer the scrape.", f"sum({own('up')})", unit="none", steps=PLAIN),
        number(
            "Decision mismatches",
            "Sequences whose decision could not be reproduced, within the time shown: a defect, if there is any.",
            f"sum(increase({own('trmon_decision_mismatch_total')}[$__range]))",
            unit="none",
            steps=ANY,
        ),
        number(
            "Lost messages",
            "Messages that clients lost, or that were refused, within the time shown.",
            f"sum(increase({own('trmon_dropped_total')}[$__range]))",
            unit="none",
            steps=SOME,
        ),
        number(
            "Untold alerts",
            "Notifications given up after their last try, within the time shown.",
            f"sum(increase({own('trmon_delivery_total', outcome='dead')}[$__range]))",
            unit="none",
            steps=ANY,
        ),
        number(
            "Runs not shown",
            "Active runs that /metrics leaves out, because there are more than TRMON_METRICS_MAX_RUNS.",
            f"max({own('trmon_runs_omitted')})",
            unit="none",
            steps=SOME,
        ),
        number(
            "Free disk", "Of the database's disk.", f"min({own('trmon_disk_free_bytes')})", unit="bytes", steps=ROOM
        ),
    ]


def _accepted() -> list[timeseries.Panel | table.Panel]:
    in_force = active_mask_rate(runs("trmon_mask_rate"), runs("trmon_threshold"))
    return [
        chart(
            "Rejected, by policy: median over the runs",
            "Share of sequences that each policy rejects, in force or as a shadow: what another choice would mask.",
            (f"quantile by (policy) (0.5, {REJECTED})", "{{policy}}"),
            unit="percentunit",
            steps=band("mask_rate"),
        ),
        chart(
            "Rejected by the policies in force",
            "Median and largest share over the runs.",
            (f"quantile(0.5, {per_run(in_force)})", "median"),
            (f"max({per_run(in_force)})", "largest"),
            unit="percentunit",
            steps=band("mask_rate"),
        ),
        stacked(
            "Sequences a second",
            "Sequences that came, by decision.",
            (rate(own("trmon_sequences_total"), by="decision"), "{{decision}}"),
            unit="cps",
        ),
        rows(
            "Bounds in force",
            "What each run's policy demands of a sequence, its newest value.",
            {"Bound": BOUND},
            unit="short",
            transformations=[
                DataTransformerConfig(
                    id_val="organize",
                    options={"excludeByName": {"Time": True}, "renameByName": {"Value": "value"}},
                )
            ],
        ),
    ]


def _reports() -> list[timeseries.Panel]:
    return [
        stacked(
            "Messages a second",
            "Messages received, by what became of them; duplicates are repeats after an outage and harmless.",
            (rate(own("trmon_reports_total"), by="status"), "{{status}}"),
            unit="cps",
        ),
        _latency("Time to a durable answer", "From a request's body to its answer, on disk.", "trmon_ingest_seconds"),
        _latency("Time of a group commit", "One transaction of all that waited.", "trmon_commit_seconds"),
        chart(
            "Operations that wait for the disk",
            "At 4096 the service answers 429 and clients wait, then spool.",
            (f"sum by (instance) ({own('trmon_queue_depth')})", "{{instance}}"),
            unit="none",
        ),
        stacked(
            "Lost messages a second, by reason",
            "What clients say they lost, and what was refused here.",
            (rate(own("trmon_dropped_total"), by="reason"), "{{reason}}"),
            unit="cps",
        ),
        chart(
            "Reports that came late or could not be replayed",
            "Late: after their batch was closed. Not replayed: of a policy the service does not know.",
            (f"sum(rate({own('trmon_late_reports_total')}[$__rate_interval]))", "late"),
            (f"sum(rate({own('trmon_unreplayed_reports_total')}[$__rate_interval]))", "not replayed"),
            unit="cps",
        ),
    ]


def _latency(title: str, about: str, histogram: str) -> timeseries.Panel:
    queries = [(quantile(q, histogram), f"{100 * q:g} %") for q in (0.5, 0.95, 0.99)]
    return chart(title, f"{about} Median, 95 % and 99 % of them.", *queries, unit="s")


def _worker() -> list[timeseries.Panel]:
    return [
        _latency(
            "Lag of closing",
            "From a batch's newest report to its close; a rank that is late counts.",
            "trmon_close_lag_seconds",
        ),
        chart(
            "Failed passes and decision mismatches",
            "A pass over a run that failed is tried again; a decision that cannot be reproduced is a defect.",
            (f"sum(rate({own('trmon_worker_failures_total')}[$__rate_interval]))", "failed passes"),
            (f"sum(rate({own('trmon_decision_mismatch_total')}[$__rate_interval]))", "mismatches"),
            unit="cps",
        ),
        stacked(
            "Notifications a second, by outcome",
            "Tries to tell a receiver of an alert; dead ones were given up.",
            (rate(own("trmon_delivery_total"), by="outcome"), "{{outcome}}"),
            unit="cps",
        ),
    ]


def _machine() -> list[timeseries.Panel]:
    return [
        chart(
            "CPU",
            "Processor time that each instance spends, in seconds a second.",
            (f"rate({own('process_cpu_seconds_total')}[$__rate_interval])", "{{instance}}"),
            unit="none",
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
            "Of the database's disk, as each instance sees it.",
            (f"min by (instance) ({own('trmon_disk_free_bytes')})", "{{instance}}"),
            unit="bytes",
            width=6,
        ),
        chart(
            "Rows pruned a second",
            "What retention deletes, and how often it fails.",
            (rate(own("trmon_pruned_total"), by="what"), "{{what}}"),
            unit="cps",
            width=6,
        ),
    ]
