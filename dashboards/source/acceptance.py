"""The dashboard *Acceptance*: what the policies reject, by which bounds, and what other policies would reject."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from dashboards.source.dashboard import dashboard, incident_mark, page_link
from dashboards.source.panels import TO_RUN, band, chart, number, rows, stacked
from dashboards.source.promql import active_mask_rate, own, per_run, rate, runs, several_runs
from dashboards.source.service import decision_mismatches

REJECTED = per_run(runs("trmon_mask_rate"), "policy")
BOUND = per_run(runs("trmon_threshold"), "policy", "statistic", "pair", "where", "bound")
IN_FORCE = per_run(active_mask_rate(runs))


def acceptance() -> Dashboard:
    made = dashboard(
        "trmon-acceptance",
        "trmon / Acceptance",
        "What the policies reject, by which bounds, and what other policies would reject.",
        chosen=several_runs(),
        rows={"": [*_numbers(), *_rejected()], "By policy": _by_policy()},
    ).link(page_link("The page", "/"))
    return made.annotation(incident_mark("page"))


def _numbers() -> list[stat.Panel]:
    return [
        number("Runs", "Runs with an active policy.", f"count({IN_FORCE})", width=6),
        number(
            "Median rejected",
            "The median over the runs of the share that the active policy rejects.",
            f"quantile(0.5, {IN_FORCE})",
            unit="percentunit",
            steps=band("mask_rate"),
            width=6,
        ),
        most_rejected(width=6),
        decision_mismatches(width=6),
    ]


def most_rejected(*, width: int = 4) -> stat.Panel:
    """Return the number of the run that rejects most."""
    return number(
        "Most rejected",
        "The largest share of sequences that a run's active policy rejects.",
        f"max({IN_FORCE})",
        unit="percentunit",
        steps=band("mask_rate"),
        width=width,
    )


def most_rejecting_runs() -> timeseries.Panel:
    """Return the courses of the runs that reject most."""
    return chart(
        "Rejected sequences: the ten largest shares",
        "Share of sequences that the active policy rejects, or would reject in observe mode.",
        (f"topk(10, {IN_FORCE})", "{{project}}/{{run}}"),
        unit="percentunit",
        steps=band("mask_rate"),
        link=TO_RUN,
    )


def _rejected() -> list[timeseries.Panel]:
    return [
        chart(
            "Rejected by the active policies",
            "Median and largest share over the runs.",
            (f"quantile(0.5, {IN_FORCE})", "median"),
            (f"max({IN_FORCE})", "largest"),
            unit="percentunit",
            steps=band("mask_rate"),
        ),
        most_rejecting_runs(),
        stacked(
            "Sequences per second",
            "Sequences received, by decision.",
            (rate(own("trmon_sequences_total"), by="decision"), "{{decision}}"),
            unit="cps",
        ),
    ]


def _by_policy() -> list[timeseries.Panel | table.Panel]:
    return [
        chart(
            "Rejected, by policy: median over the runs",
            "Share of sequences that each policy rejects, active or shadow: what another choice would mask.",
            (f"quantile by (policy) (0.5, {REJECTED})", "{{policy}}"),
            unit="percentunit",
            steps=band("mask_rate"),
            width=12,
        ),
        rows(
            "Active bounds",
            "The bounds that each run's policy sets for a sequence, newest value.",
            {"Bound": BOUND},
            [
                DataTransformerConfig(
                    id_val="organize", options={"excludeByName": {"Time": True}, "renameByName": {"Value": "value"}}
                )
            ],
        ),
    ]
