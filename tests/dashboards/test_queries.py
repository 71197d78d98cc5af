"""Every expression of every dashboard returns series from a real Prometheus that scrapes a real service."""

from __future__ import annotations

import time

import pytest

from tests.dashboards.conftest import LONG, Watched
from tests.dashboards.documents import DASHBOARDS, Asked, Json, asked, substituted, variables
from tests.fixtures.prometheus import label_values, query, query_range
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.server("prometheus"), pytest.mark.timeout(300)]

CHOSEN = {
    "datasource": "prometheus",
    "job": ".+",
    "instance": ".+",
    "project": "math",
    "run": "ill",
    "scalar": "grad_norm",
    "__rate_interval": "30s",
    "__range": "10m",
}
"""Variable values: everything, or the ill run where a single run must be selected."""


def returns_series(watched: Watched, one: Asked) -> bool:
    run = LONG if "trmon_collapse_risk" in one.expression else CHOSEN["run"]
    chosen = {**CHOSEN, "run": run}
    expression = substituted(one.expression, chosen)
    if one.over_time:
        return bool(query_range(watched.api, expression, start=watched.since, end=time.time()))
    # A scrape that was too slow leaves nothing until the next one.
    return bool(eventually(lambda: query(watched.api, expression)))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_expression_returns_series(watched: Watched, name: str) -> None:
    expressions = [one for one in asked() if one.place.startswith(f"{name}: ")]
    assert expressions
    assert [one.place for one in expressions if not returns_series(watched, one)] == []


OF_PROBLEMS = {"Since step", "Last good step", "Incident"}
"""Numbers that a run without a problem has not."""
OF_LATER_STEPS = {"Risk of collapse"}
"""Numbers that runs of 20 and 40 steps, as both are, have not yet."""


def top_row(watched: Watched, run: str) -> dict[str, list[Json]]:
    """Return the series of each panel of the first row by its title."""
    return {
        panel["title"]: query(watched.api, substituted(panel["targets"][0]["expr"], CHOSEN | {"run": run}))
        for panel in DASHBOARDS["run-health"]["panels"]
        if panel["type"] == "stat"
    }


@pytest.mark.parametrize("run", ["healthy", "ill"])
def test_the_top_row_has_values_for_the_healthy_and_the_ill_run(watched: Watched, run: str) -> None:
    missing = OF_LATER_STEPS if run == "ill" else OF_PROBLEMS | OF_LATER_STEPS
    values = eventually(
        lambda: top_row(watched, run),
        lambda found: {title for title, series in found.items() if len(series) != 1} == missing,
    )
    [verdict] = values["Verdict"]
    assert float(verdict["value"][1]) == (2 if run == "ill" else 0)
    assert bool(verdict["metric"].get("cause")) is (run == "ill")
    [state], [pages], [warnings] = (values[title] for title in ("State", "Pages", "Warnings"))
    assert state["value"][1] == "0"
    assert (pages["value"][1], warnings["value"][1]) == ("1" if run == "ill" else "0", "0")  # one illness, one alert


def test_the_fleet_shows_which_runs_need_attention(watched: Watched) -> None:
    [need] = [panel for panel in DASHBOARDS["fleet"]["panels"] if panel["type"] == "state-timeline"]
    found = eventually(lambda: query(watched.api, substituted(need["targets"][0]["expr"], CHOSEN | {"run": ".+"})))
    needs = {series["metric"]["run"]: float(series["value"][1]) for series in found}
    assert needs["healthy"] == 0
    assert needs["ill"] > 0


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_offers_values(watched: Watched, name: str) -> None:
    offered = {}
    for variable in variables(DASHBOARDS[name]):
        inner = substituted(variable["query"], CHOSEN).removeprefix("label_values(").removesuffix(")")
        selector, _, label = inner.rpartition(", ")
        offered[variable["name"]] = label_values(watched.api, label, selector=selector)
    assert [variable for variable, values in offered.items() if not values] == []
    assert offered["page"] == ["http://localhost:8642"]
