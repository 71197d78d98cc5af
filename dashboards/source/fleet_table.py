"""The table of *Fleet*: one row per run, the most urgent first."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.builders.common import TableSortByFieldState
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.source.bands import ACT, HEALTHY, WATCH, Step, band
from dashboards.source.fleet_queries import MASK_RATE, NEED, NEEDS, SILENCE, STATE
from dashboards.source.links import STEP_ON_PAGE, run_health
from dashboards.source.panels import Meanings, rows
from dashboards.source.promql import per_run, runs

COLUMNS = {
    "Need": NEED,
    "Verdict": per_run(runs("trmon_run_verdict"), "verdict", "cause"),
    "Since": per_run(runs("trmon_run_since_step")),
    "Last good": per_run(runs("trmon_run_last_good_step")),
    "State": f"{STATE} == 1",
    "Step": per_run(runs("trmon_step")),
    "Rejected": MASK_RATE,
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


def runs_table() -> table.Panel:
    """Return the table."""
    panel = rows(
        "Runs, most urgent first",
        "Since: the step at which began what the verdict names; last good: the step before the incident; KL: kl_k3, "
        "ESS: effective share of tokens, both of the primary pair; rejected: by the active policy.",
        COLUMNS,
        unit="short",
        transformations=_one_row_a_run(),
    )
    panel.sort_by([TableSortByFieldState().display_name("Need").desc(True)])
    for name, properties in _looks().items():
        panel.override_by_name(name, [DynamicConfigValue(id_val=key, value=value) for key, value in properties.items()])
    return panel


def _one_row_a_run() -> list[DataTransformerConfig]:
    """Grafana names a query's column by its ref id, `Value #Need`, until it is renamed."""
    named = {name: f"Value #{name}" for name in COLUMNS}
    return [
        DataTransformerConfig(id_val="merge", options={}),
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True, named["State"]: True, named["Verdict"]: True},
                "renameByName": {before: after for after, before in named.items()},
                "indexByName": {named.get(name, name): i for i, name in enumerate(ORDER)},
            },
        ),
    ]


def _looks() -> Mapping[str, Mapping[str, object]]:
    """Return the overrides of the columns."""
    colored = {"type": "color-text"}
    return {
        "Need": {
            "mappings": [_texts(NEEDS)],
            "custom.cellOptions": {"type": "color-background"},
            "thresholds": _steps([(None, HEALTHY), (1, WATCH), (2, ACT)]),
        },
        "run": {"links": [{"title": "Run health", "url": run_health("__data.fields")}]},
        "Since": {"unit": "none"},
        "Last good": {"unit": "none"},
        "Step": {"unit": "none", "links": [{"title": "On the page", "url": STEP_ON_PAGE, "targetBlank": True}]},
        "Rejected": {"unit": "percentunit", "custom.cellOptions": colored, "thresholds": _steps(band("mask_rate"))},
        "KL": {"custom.cellOptions": colored, "thresholds": _steps(band("kl_k3")), "decimals": 5},
        "ESS": {"unit": "percentunit", "custom.cellOptions": colored, "thresholds": _steps(band("ess_token"))},
        "Silence": {"unit": "s"},
    }


def _texts(meanings: Meanings) -> dict[str, object]:
    options = {str(value): {"text": text, "color": color} for value, (text, color) in meanings.items()}
    return {"type": "value", "options": options}


def _steps(steps: list[Step]) -> dict[str, object]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}
