"""Grafana's provisioned alert rules: in Grafana's format, on existing metrics, and silent without data."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import promql_parser as promql
import pytest
import yaml

from dashboards.source.__main__ import FOLDER
from dashboards.source.alerting import RULES
from tests.dashboards.conftest import Watched
from tests.dashboards.lint import nodes
from tests.fixtures.prometheus import query
from tests.fixtures.waiting import eventually

Json = dict[str, Any]


def provisioned(kind: str) -> Json:
    document: Json = yaml.safe_load((FOLDER / "provisioning" / kind / "trmon.yml").read_text())
    assert document["apiVersion"] == 1
    return document


[GROUP] = provisioned("alerting")["groups"]
ALERTS: list[Json] = GROUP["rules"]
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")


def measured(expression: str) -> str:
    """Return the compared expression: the left side of the rule's first comparison, or the absent metric."""
    for node, _ in nodes(promql.parse(expression)):
        if isinstance(node, promql.BinaryExpr) and str(node.op) in COMPARISONS:
            return str(node.lhs.prettify())
        if isinstance(node, promql.Call) and node.func.name == "absent":
            return str(node.args[0].prettify())
    raise AssertionError(f"{expression} compares nothing")


@pytest.mark.server("prometheus")
@pytest.mark.timeout(300)
def test_the_series_of_every_rule_exist(watched: Watched) -> None:
    for alert in ALERTS:
        expression = alert["data"][0]["model"]["expr"]
        # A series of an alert exists while the alert fires: those that fire here are all of kind health.
        series = re.sub(r"\[\d+[mh]\]", "[30s]", measured(expression).replace('kind!="health"', 'kind!=""'))
        assert eventually(partial(query, watched.api, series)), alert["title"]
        query(watched.api, expression)


@pytest.mark.server("prometheus")
@pytest.mark.timeout(300)
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


def test_every_rule_has_grafanas_provisioning_format() -> None:
    datasource = provisioned("datasources")["datasources"][0]["uid"]
    for alert in ALERTS:
        assert re.fullmatch(r"[a-z0-9_-]{1,40}", alert["uid"])
        assert (alert["noDataState"], alert["execErrState"]) == ("OK", "Error"), alert["title"]
        asking, present, condition = alert["data"]
        assert asking["datasourceUid"] == datasource, alert["title"]
        assert f"${asking['refId']}" in present["model"]["expression"], alert["title"]
        assert (condition["model"]["expression"], condition["refId"]) == (present["refId"], alert["condition"])
        assert re.fullmatch(r"\d+[smh]", alert["for"]), alert["title"]
        assert alert["labels"]["severity"] in ("page", "warn"), alert["title"]
        assert set(alert["annotations"]) == {"summary", "description"}, alert["title"]


def test_grafana_has_every_alert_of_prometheus() -> None:
    names = [
        rule["alert"]
        for file in sorted(RULES.glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert sorted(alert["title"] for alert in ALERTS) == sorted(names)


def test_no_rule_depends_on_our_recording_rules() -> None:
    asked = [
        node.name
        for alert in ALERTS
        for node, _ in nodes(promql.parse(alert["data"][0]["model"]["expr"]))
        if isinstance(node, promql.VectorSelector)
    ]
    assert asked
    assert [name for name in asked if ":" in (name or "")] == []


def test_dashboards_are_provisioned_into_a_read_only_folder() -> None:
    [provider] = provisioned("dashboards")["providers"]
    assert (provider["type"], provider["folder"], provider["allowUiUpdates"]) == ("file", GROUP["folder"], False)
