"""The dashboard *Fleet*: which runs need attention, since when, and the state of all others."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.source.axes import DECADES, SHARE
from dashboards.source.bands import ACT, HEALTHY, WATCH, Step, band
from dashboards.source.dashboard import dashboard, page_link
from dashboards.source.fleet_queries import GONE, MASK_RATE, NEED, NEEDS, NOW, RUNNING, SILENCE, SOON, STATE
from dashboards.source.fleet_table import runs_table
from dashboards.source.links import TO_RUN
from dashboards.source.marks import IncidentMark
from dashboards.source.panels import PLAIN, chart, number, stacked, timeline
from dashboards.source.promql import or_zero, per_run, runs
from dashboards.source.variables import several_runs

SOMEBODY: list[Step] = [(None, HEALTHY), (1, ACT)]
SOMETIME: list[Step] = [(None, HEALTHY), (1, WATCH)]
LEGEND = "{{project}}/{{run}}"


def fleet() -> Dashboard:
    """Return the dashboard."""
    made = dashboard(
        "trmon-fleet",
        "trmon / Fleet",
        "Every active run: which ones need attention, since when, and the state of all others.",
        chosen=several_runs(),
        rows={
            "": [*_numbers(), _verdicts(), runs_table()],
            "Worst runs by signal": _worst(),
            "All together": _together(),
        },
    ).link(page_link("Fleet on the page", "/"))
    return made.annotation(IncidentMark("page"))


def _numbers() -> list[stat.Panel]:
    return [
        number(
            "Runs", "Runs that reported within the last hour.", f"count({per_run(STATE)})", unit="none", steps=PLAIN
        ),
        number(
            "To act on",
            "Runs whose verdict is to be investigated now: a page, a crash or a stall that nobody has acknowledged.",
            or_zero(f"count({NOW})"),
            unit="none",
            steps=SOMEBODY,
        ),
        number(
            "To watch",
            "Runs whose verdict is to be investigated soon: a warning or a finding.",
            or_zero(f"count({SOON} unless {NOW})"),
            unit="none",
            steps=SOMETIME,
        ),
        number(
            "Silent or crashed",
            "Runs that ended with an error, or have been silent for longer than three of their usual steps.",
            or_zero(f"count({GONE})"),
            unit="none",
            steps=SOMEBODY,
        ),
        number(
            "Longest silence",
            "Time since the newest report of the running run that has been silent for longest.",
            or_zero(f"max(({SILENCE}) and {RUNNING} == 1)"),
            unit="s",
            steps=PLAIN,
        ),
        number(
            "Most rejected",
            "The largest share of sequences that a run's active policy rejects.",
            f"max({MASK_RATE})",
            unit="percentunit",
            steps=band("mask_rate"),
        ),
    ]


def _verdicts() -> statetimeline.Panel:
    return timeline(
        "Verdict of each run",
        "Red while the run is to be investigated now, orange while soon; green once its alerts are acknowledged.",
        (NEED, LEGEND),
        meanings=NEEDS,
        height=8,
        link=TO_RUN,
    )


def _worst() -> list[timeseries.Panel]:
    return [
        chart(
            "KL per token: the ten largest",
            "kl_k3 of the primary pair, nats per token, of the runs where it is largest.",
            (f"topk(10, {per_run(runs('trmon_kl_k3'))})", LEGEND),
            unit="none",
            steps=band("kl_k3"),
            axis=DECADES,
            link=TO_RUN,
        ),
        chart(
            "Effective share of tokens: the ten smallest",
            "When importance weights blow up, few tokens carry all the weight.",
            (f"bottomk(10, {per_run(runs('trmon_ess_token'))})", LEGEND),
            unit="percentunit",
            steps=band("ess_token"),
            axis=SHARE,
            link=TO_RUN,
        ),
        chart(
            "Rejected sequences: the ten largest shares",
            "Share of sequences that the active policy rejects, or would reject in observe mode.",
            (f"topk(10, {MASK_RATE})", LEGEND),
            unit="percentunit",
            steps=band("mask_rate"),
            link=TO_RUN,
        ),
    ]


def _together() -> list[timeseries.Panel]:
    kl = per_run(runs("trmon_kl_k3"))
    return [
        stacked(
            "Runs by state",
            "Number of active runs in each state.",
            (f"sum by (state) ({STATE})", "{{state}}"),
            unit="none",
        ),
        stacked(
            "Alerts firing, by rule",
            "Number of runs on which each rule fires.",
            (_firing_by_rule(), "{{rule}}"),
            unit="none",
        ),
        chart(
            "KL per token over the fleet",
            "Median, 95th percentile and maximum of kl_k3 over the runs.",
            (f"quantile(0.5, {kl})", "median"),
            (f"quantile(0.95, {kl})", "95 %"),
            (f"max({kl})", "maximum"),
            unit="none",
            steps=band("kl_k3"),
            axis=DECADES,
        ),
    ]


def _firing_by_rule() -> str:
    return f"sum by (rule) ({per_run(runs('trmon_alert_active'), 'rule')}) > 0 or on () vector(0)"
