"""The committed dashboards and alert rules: as generated, in Grafana's format, linted, with bands at limits."""

from __future__ import annotations

import copy
import math
import re

import promql_parser as promql
import pytest
import yaml

from dashboards.source.__main__ import FOLDER, generated
from dashboards.source.alerting import RULES
from dashboards.source.panels import ACT, HEALTHY, WATCH, Step, band, judges
from tests.dashboards.lint import (
    ALERTS,
    DASHBOARDS,
    GROUP,
    RATE_INTERVAL_SECONDS,
    annotations,
    known_to_grafana,
    nodes,
    panels,
    parsed,
    provisioned,
    variables,
)
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon_client.core.signals.catalogue import SIGNALS

OF_THE_PROMETHEUS_PLUGIN = ("titleFormat", "textFormat", "step", "useValueForTime")
"""Fields of annotations that Grafana's model of dashboards leaves to the data source's plugin."""


def test_every_file_matches_its_source() -> None:
    files = generated()
    for path, text in files.items():
        assert (FOLDER / path).read_text() == text, f"{path}: run `make dashboards`"
    committed = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json")}
    assert committed == {path for path in files if path.endswith(".json")}


def test_grafanas_published_model_knows_every_field() -> None:
    for name, dashboard in DASHBOARDS.items():
        shown = copy.deepcopy(dashboard)
        for mark in annotations(shown):
            for field in OF_THE_PROMETHEUS_PLUGIN:
                mark.pop(field, None)
        assert known_to_grafana(shown) == shown, name


def test_a_field_that_grafana_does_not_know_is_detected() -> None:
    for place in ("panel", "options", "target", "dashboard"):
        shown = copy.deepcopy(DASHBOARDS["fleet"])
        panel = panels(shown)[0]
        {"panel": panel, "options": panel["options"], "target": panel["targets"][0], "dashboard": shown}[place][
            "made_up"
        ] = 1
        assert known_to_grafana(shown) != shown, place


def test_uids_and_titles_are_unique() -> None:
    for key in ("uid", "title"):
        assert len({dashboard[key] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)


def test_panel_ids_and_positions_are_unique() -> None:
    for name, dashboard in DASHBOARDS.items():
        shown = panels(dashboard)
        assert len({panel["id"] for panel in shown}) == len(shown), name
        covered = [cell for panel in shown for cell in _cells(panel["gridPos"])]
        assert len(set(covered)) == len(covered), name


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    columns = range(place["x"], place["x"] + place["w"])
    return [(column, row) for column in columns for row in range(place["y"], place["y"] + place["h"])]


RATES = ("rate", "irate")
UNITS = {"none", "short", "percentunit", "s", "bytes", "cps", "string"}
"""The Grafana units that our panels use; dashboard-linter knows all of them."""


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_are_as_dashboard_linter_wants_them(name: str) -> None:
    """Its rules template-datasource, template-job, -instance, -label-promql and -on-time-change-reload."""
    sources = [(one["name"], one["label"]) for one in variables(DASHBOARDS[name], kind="datasource")]
    assert sources == [("datasource", "Data source")]
    asking = {one["name"]: one for one in variables(DASHBOARDS[name])}
    for label in ("job", "instance"):
        found = asking[label]
        assert (found["label"], found["multi"], found["allValue"]) == (label.title(), True, ".+")
        assert found["datasource"]["uid"] == "${datasource}"
    for variable, one in asking.items():
        assert one["refresh"] == 2, variable
        selector = re.fullmatch(r"label_values\((.+), \w+\)", one["query"])
        assert selector is not None, variable
        parsed(selector[1])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_are_as_dashboard_linter_wants_them(name: str) -> None:
    """Its rules panel-datasource, panel-title-description, -units and -no-targets, and uneditable-dashboard."""
    assert DASHBOARDS[name]["editable"] is False
    for panel in panels(DASHBOARDS[name]):
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        asked = {asking["datasource"]["uid"] for asking in (panel, *panel["targets"])}
        assert asked == {"${datasource}"}, panel["title"]


def assert_linted(expression: str, place: str) -> None:
    n_selectors = 0
    for node, parents in nodes(parsed(expression)):
        if isinstance(node, promql.MatrixSelector) and parents[-1].func.name in RATES:
            assert node.range.total_seconds() == RATE_INTERVAL_SECONDS, place
        if isinstance(node, promql.VectorSelector):
            n_selectors += 1
            matched = {(one.name, one.value) for one in node.matchers.matchers if one.op == promql.MatchOp.Re}
            assert matched >= {("job", "$job"), ("instance", "$instance")}, place
            if node.name.endswith("_total"):
                assert parents[-2].func.name in (*RATES, "increase"), place
    assert n_selectors == expression.count("{") > 0, f"{place}: a selector was passed over"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_queries_are_as_dashboard_linter_wants_them(name: str) -> None:
    """Its rules target-promql, target-rate-interval, -job, -instance and -counter-agg."""
    for panel in panels(DASHBOARDS[name]):
        for target in panel["targets"]:
            assert_linted(target["expr"], f"{panel['title']} {target['refId']}")


RUN_HEALTH = DASHBOARDS["run-health"]
CHARTS = [
    (name, panel) for name, shown in DASHBOARDS.items() for panel in panels(shown) if panel["type"] == "timeseries"
]


def test_the_first_row_of_a_run_is_its_verdict_and_its_reward() -> None:
    first = sorted((p for p in panels(RUN_HEALTH) if p["gridPos"]["y"] == 0), key=lambda p: int(p["gridPos"]["x"]))
    titles = [panel["title"] for panel in first]
    assert titles == ["Verdict", "Cause", "Since step", "Last good step", "Incident", "Reward", "Peak reward"]
    assert sum(panel["gridPos"]["w"] for panel in first) == 24


def test_links_to_the_page_encode_the_names_of_runs() -> None:
    links = [link["url"] for link in RUN_HEALTH["links"] if link.get("url")]
    links += [link["url"] for panel in panels(RUN_HEALTH) for link in panel["fieldConfig"]["defaults"].get("links", ())]
    assert set(links) == {"${page}/runs/${project:percentencode}/${run:percentencode}"}


def test_links_between_dashboards_encode_the_names_of_runs() -> None:
    links = [link["url"] for _, panel in CHARTS for link in panel["fieldConfig"]["defaults"].get("links", ())]
    to_runs = {url for url in links if "/d/trmon-run-health" in url}
    assert len(to_runs) == 1
    assert all("&var-run=${__field.labels.run:percentencode}" in url for url in to_runs)


def test_acceptance_and_trmon_itself_are_apart() -> None:
    about = {
        name: {target["expr"] for panel in panels(DASHBOARDS[name]) for target in panel["targets"]}
        for name in DASHBOARDS
    }
    of_runs = {expr for expr in about["service"] if "project=~" in expr}
    assert of_runs == set()
    assert not any("process_" in expr or "trmon_reports_total" in expr for expr in about["acceptance"])


BANDS: list[tuple[str, str, list[Step]]] = [
    ("a range above, then a finding", "kl_k3", [(None, HEALTHY), (0.005, WATCH), (0.05, WATCH)]),
    ("a limit of a range and of a finding is one", "ess_token", [(None, WATCH), (0.5, HEALTHY)]),
    (
        "a distance from one, with a page far below",
        "prob_pearson",
        [(None, ACT), (-0.9, WATCH), (0.95, WATCH), (0.99, HEALTHY)],
    ),
    (
        "a size, on both sides",
        "kl_k1",
        [(None, WATCH), (-0.05, WATCH), (-0.02, HEALTHY), (0.02, WATCH), (0.05, WATCH)],
    ),
    ("a page alone", "invalid_fraction", [(None, HEALTHY), (0.01, ACT)]),
    ("what is shown and never judged", "prob_diff_max", [(None, HEALTHY)]),
    ("a signal computed by the service, with a rule", "mask_rate", [(None, HEALTHY), (0.5, WATCH)]),
]


@pytest.mark.parametrize(("signal", "steps"), [case[1:] for case in BANDS], ids=[case[0] for case in BANDS])
def test_a_band(signal: str, steps: list[Step]) -> None:
    assert band(signal) == steps


@pytest.mark.parametrize("signal", builtin_catalogue().ranges)
def test_the_steps_of_every_band_ascend_from_the_least(signal: str) -> None:
    (first, _), *rest = band(signal)
    values = [value for value, _ in rest]
    assert first is None
    assert values == sorted(values)
    assert any(color == HEALTHY for _, color in band(signal))


def test_a_clause_that_reads_other_signals_too_is_no_limit_of_a_chart() -> None:
    assert [clause.key for clause in judges("kl_k3")] == ["engine_mismatch.kl_k3"]


def test_the_risk_of_a_collapse_is_banded_by_the_thresholds_of_its_model() -> None:
    model = shipped_model().file
    assert band("collapse_risk") == [(None, HEALTHY), (model.warn_at, WATCH), (model.page_at, ACT)]


@pytest.mark.parametrize("name", builtin_catalogue().ranges)
def test_the_healthy_range_that_a_signal_is_described_with_is_that_of_the_judge(name: str) -> None:
    described = {spec.healthy for spec in SIGNALS.values() if spec.stem == name and spec.healthy}
    known = builtin_catalogue().ranges[name]
    for words in described:
        said = {float(one) for one in re.findall(r"\d[\d.e-]*", words)}
        assert said == {abs(end) for end in (known.least, known.most) if math.isfinite(end)}


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
