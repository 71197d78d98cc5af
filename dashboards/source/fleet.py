"""The dashboard *Fleet*: which runs need attention, since when, and the state of all others."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.common import TableSortByFieldState
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.source.acceptance import IN_FORCE, most_rejected, most_rejecting_runs
from dashboards.source.dashboard import dashboard, incident_mark, page_link
from dashboards.source.panels import (
    ACT,
    DECADES,
    HEALTHY,
    SHARE,
    STEP_ON_PAGE,
    TO_RUN,
    WATCH,
    Meanings,
    Step,
    band,
    chart,
    number,
    rows,
    run_health,
    stacked,
    timeline,
)
from dashboards.source.promql import or_zero, per_run, runs, several_runs
from trmon.domain.health.judgement import NEEDS_YOU, TO_WATCH

STATE = per_run(runs("trmon_run_state"), "state")
NOW = per_run(runs("trmon_run_verdict", need="now"))
SOON = per_run(runs("trmon_run_verdict", need="soon"))
RUNNING = per_run(runs("trmon_run_state", state="running"))
GONE = per_run(runs("trmon_run_state", state="stalled|crashed"), "state")
SILENCE = f"time() - {per_run(runs('trmon_last_report_timestamp_seconds'))}"

NEED = f"2 * {NOW} or {SOON} or 0 * {per_run(runs('trmon_run_verdict'))}"
NEEDS: Meanings = {0: ("nothing to do", HEALTHY), 1: ("soon", WATCH), 2: ("now", ACT)}
"""How soon to investigate a run, by its verdict; of replicas that differ, the more urgent one."""


COLUMNS = {
    "Need": NEED,
    "Verdict": per_run(runs("trmon_run_verdict"), "verdict", "cause"),
    "Since": per_run(runs("trmon_run_since_step")),
    "Last good": per_run(runs("trmon_run_last_good_step")),
    "State": f"{STATE} == 1",
    "Step": per_run(runs("trmon_step")),
    "Rejected": IN_FORCE,
    "KL": per_run(runs("trmon_kl_k3")),
    "ESS": per_run(runs("trmon_ess_token")),
    "Reward": per_run(runs("trmon_reward_mean")),
    "Silence": SILENCE,
}
"""The query of each column; State and Verdict show their labels."""
ORDER = (
    *("project", "run", "Need", "verdict", "cause", "Since", "Last good", "state", "Step"),
    *("Rejected", "KL", "ESS", "Reward", "Silence"),
)
SOMEBODY: list[Step] = [(None, HEALTHY), (1, ACT)]
SOMETIME: list[Step] = [(None, HEALTHY), (1, WATCH)]
LEGEND = "{{project}}/{{run}}"


def _steps(steps: list[Step]) -> dict[str, object]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


COLORED = {"type": "color-text"}
LOOKS: dict[str, dict[str, object]] = {
    "Need": {
        "mappings": [
            {
                "type": "value",
                "options": {str(value): {"text": text, "color": color} for value, (text, color) in NEEDS.items()},
            }
        ],
        "custom.cellOptions": {"type": "color-background"},
        "thresholds": _steps([(None, HEALTHY), (1, WATCH), (2, ACT)]),
    },
    "run": {"links": [{"title": "Run health", "url": run_health("__data.fields")}]},
    "Since": {"unit": "none"},
    "Last good": {"unit": "none"},
    "Step": {"unit": "none", "links": [{"title": "On the page", "url": STEP_ON_PAGE, "targetBlank": True}]},
    "Rejected": {"unit": "percentunit", "custom.cellOptions": COLORED, "thresholds": _steps(band("mask_rate"))},
    "KL": {"custom.cellOptions": COLORED, "thresholds": _steps(band("kl_k3")), "decimals": 5},
    "ESS": {"unit": "percentunit", "custom.cellOptions": COLORED, "thresholds": _steps(band("ess_token"))},
    "Silence": {"unit": "s"},
}


def runs_table() -> table.Panel:
    # Grafana names a query's column by its ref id until it is renamed.
    named = {name: f"Value #{name}" for name in COLUMNS}
    panel = rows(
        "Runs, most urgent first",
        "Since: the step at which began what the verdict names; last good: the step before the incident; KL: kl_k3, "
        "ESS: effective share of tokens, both of the primary pair; rejected: by the active policy.",
        COLUMNS,
        [
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True, named["State"]: True, named["Verdict"]: True},
                    "renameByName": {before: after for after, before in named.items()},
                    "indexByName": {named.get(name, name): i for i, name in enumerate(ORDER)},
                },
            ),
        ],
    )
    panel.sort_by([TableSortByFieldState().display_name("Need").desc(True)])
    for name, properties in LOOKS.items():
        panel.override_by_name(name, [DynamicConfigValue(id_val=key, value=value) for key, value in properties.items()])
    return panel


def fleet() -> Dashboard:
    made = dashboard(
        "trmon-fleet",
        "trmon / Fleet",
        "Every active run: which ones need attention, since when, and the state of all others.",
        chosen=several_runs(),
        rows={
            "": [*_numbers(), _verdicts(), runs_table()],
            "Worst runs by signal": [
                chart(
                    "KL per token: the ten largest",
                    "kl_k3 of the primary pair, nats per token, of the runs where it is largest.",
                    (f"topk(10, {per_run(runs('trmon_kl_k3'))})", LEGEND),
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
                most_rejecting_runs(),
            ],
            "All together": _together(),
        },
    ).link(page_link("Fleet on the page", "/"))
    return made.annotation(incident_mark("page"))


def _numbers() -> list[stat.Panel]:
    return [
        number("Runs", "Runs that reported within the last hour.", f"count({per_run(STATE)})"),
        number(
            "To act on",
            "Runs whose verdict is to be investigated now: a page, a crash or a stall that is not acknowledged.",
            or_zero(f"count({per_run(runs('trmon_run_verdict', counts_as=NEEDS_YOU))})"),
            steps=SOMEBODY,
        ),
        number(
            "To watch",
            "Runs that train and are to be investigated soon: a warning or a finding.",
            or_zero(f"count({per_run(runs('trmon_run_verdict', counts_as=TO_WATCH))} unless {NOW})"),
            steps=SOMETIME,
        ),
        number(
            "Silent or crashed",
            "Runs that ended with an error, or have been silent for longer than three of their usual steps.",
            or_zero(f"count({GONE})"),
            steps=SOMEBODY,
        ),
        number(
            "Longest silence",
            "Time since the newest report of the running run that has been silent for longest.",
            or_zero(f"max(({SILENCE}) and {RUNNING} == 1)"),
            unit="s",
        ),
        most_rejected(),
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


def _together() -> list[timeseries.Panel]:
    kl = per_run(runs("trmon_kl_k3"))
    firing = f"sum by (rule) ({per_run(runs('trmon_alert_active'), 'rule')}) > 0 or on () vector(0)"
    return [
        stacked("Runs by state", "Number of active runs in each state.", (f"sum by (state) ({STATE})", "{{state}}")),
        stacked("Alerts firing, by rule", "Number of runs on which each rule fires.", (firing, "{{rule}}")),
        chart(
            "KL per token over the fleet",
            "Median, 95th percentile and maximum of kl_k3 over the runs.",
            (f"quantile(0.5, {kl})", "median"),
            (f"quantile(0.95, {kl})", "95 %"),
            (f"max({kl})", "maximum"),
            steps=band("kl_k3"),
            axis=DECADES,
        ),
    ]
