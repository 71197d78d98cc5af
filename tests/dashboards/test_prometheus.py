"""Expressions of dashboards and alert rules over a real Prometheus that scrapes a real service."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import httpx
import promql_parser as promql
import pytest

from tests.dashboards.lint import ALERTS, DASHBOARDS, Asked, Json, asked, nodes, substituted, variables
from tests.fixtures.prometheus import label_values, prometheus, query, query_range, scraping
from tests.fixtures.replay import PROJECT, ReplayedRun, replaying
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import train_until_risk
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey

pytestmark = [pytest.mark.server("prometheus"), pytest.mark.timeout(300)]

HEALTHY = ReplayedRun("healthy", "healthy")
ILL = ReplayedRun("ill", "stale", mode="enforce")
WARNED = ReplayedRun("warned", "stale")
"""Drift that does not collapse a run is a warning; where the masks are enforced, a mask rate of 0.9 is a page."""
LONG = "long"
"""The run of enough steps, in batches that are large enough, for a risk of collapse."""
FIRING = 'count(count by (severity) (trmon_alert_active{run="ill"} == 1)) >= 2'
"""A page and a warning of the ill run are firing."""
TOLD = "count(count by (severity) (trmon_incident_since_step)) == 2"
"""One ill run has an incident that pages, the other one that warns."""
RISK = 'trmon_collapse_risk{run="long"}'
"""The risk of the long run."""
SEEN = 'count_over_time(trmon_scalar{run="ill", name="grad_norm"}[1m]) > 2'
"""The trainer's metrics at the end of each step, scraped often enough for a range of one-second steps."""


@dataclass(frozen=True)
class Watched:
    """The API of Prometheus, the service's address and the time of the first scrape."""

    api: httpx.Client
    url: str
    since: float


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Replay the runs while they are scraped; their clients stay connected until the last test."""
    folder, since = tmp_path_factory.mktemp("watched"), time.time()
    service = ServiceProcess(folder / "data", public_url="http://localhost:8642")
    try:
        with (
            prometheus(folder, scraping(service.url)) as api,
            service.client() as client,
            replaying(client, HEALTHY, ILL, WARNED),
        ):
            train_until_risk(client, RunKey(PROJECT, LONG))
            for expression in (FIRING, TOLD, SEEN, RISK):
                eventually(partial(query, api, expression), timeout_seconds=60.0)
            yield Watched(api, service.url, since)
    finally:
        service.kill()


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
    expression = substituted(one.expression, CHOSEN | {"run": run})

    def found() -> list[Json]:
        if one.over_time:
            return query_range(watched.api, expression, start=watched.since, end=time.time())
        return query(watched.api, expression)

    # A scrape that was too slow leaves nothing until the next one.
    return bool(eventually(found))


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


COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")


def measured(expression: str) -> str:
    """Return the compared expression: the left side of the rule's first comparison, or the absent metric."""
    for node, _ in nodes(promql.parse(expression)):
        if isinstance(node, promql.BinaryExpr) and str(node.op) in COMPARISONS:
            return str(node.lhs.prettify())
        if isinstance(node, promql.Call) and node.func.name == "absent":
            return str(node.args[0].prettify())
    raise AssertionError(f"{expression} compares nothing")


def test_the_series_of_every_rule_exist(watched: Watched) -> None:
    for alert in ALERTS:
        expression = alert["data"][0]["model"]["expr"]
        # A series of an alert exists while the alert fires: those that fire here are all of kind health.
        series = re.sub(r"\[\d+[mh]\]", "[30s]", measured(expression).replace('kind!="health"', 'kind!=""'))
        assert eventually(partial(query, watched.api, series)), alert["title"]
        query(watched.api, expression)


def test_an_ill_run_has_one_alert_and_the_healthy_one_has_none(watched: Watched) -> None:
    titles = ("TrmonRunIncidentPage", "TrmonRunIncidentWarning", "TrmonRunActNow", "TrmonRunWatch")
    asked = {alert["title"]: alert["data"][0]["model"]["expr"] for alert in ALERTS if alert["title"] in titles}
    expected = {
        "TrmonRunIncidentPage": ["ill"],
        "TrmonRunIncidentWarning": ["warned"],
        "TrmonRunActNow": [],
        "TrmonRunWatch": [],
    }

    def firing() -> dict[str, list[str]]:
        found = {title: query(watched.api, expression) for title, expression in asked.items()}
        return {title: [series["metric"]["run"] for series in all_of_it] for title, all_of_it in found.items()}

    eventually(firing, expected.__eq__)
