"""What panels show besides their queries: the first row of a run, scales, legends, marks and links."""

from __future__ import annotations

import pytest

from dashboards.source.promql import per_run, run
from dashboards.source.run_health import METHODS
from tests.dashboards.documents import DASHBOARDS, Json, annotations, panels

RUN_HEALTH = DASHBOARDS["run-health"]
CHARTS = [
    (name, panel) for name, shown in DASHBOARDS.items() for panel in panels(shown) if panel["type"] == "timeseries"
]


def chart(title: str) -> Json:
    [found] = [panel for panel in panels(RUN_HEALTH) if panel["title"] == title]
    return found


def test_the_first_row_of_a_run_is_its_verdict_and_its_reward() -> None:
    first = sorted((p for p in panels(RUN_HEALTH) if p["gridPos"]["y"] == 0), key=lambda p: int(p["gridPos"]["x"]))
    titles = [panel["title"] for panel in first]
    assert titles == ["Verdict", "Cause", "Since step", "Last good step", "Incident", "Reward", "Peak reward"]
    assert sum(panel["gridPos"]["w"] for panel in first) == 24


@pytest.mark.parametrize(
    ("title", "ends"),
    [("Effective share of tokens", (0, 1, None)), ("Correlation of probabilities", (None, 1, 0.9))],
)
def test_a_signal_with_natural_ends_is_drawn_between_them(title: str, ends: tuple[float | None, ...]) -> None:
    defaults = chart(title)["fieldConfig"]["defaults"]
    assert (defaults.get("min"), defaults.get("max"), defaults["custom"].get("axisSoftMin")) == ends


@pytest.mark.parametrize(
    ("title", "scale"),
    [
        ("KL per token, k3", {"type": "log", "log": 10}),
        ("KL per token, k1", {"type": "symlog", "log": 10, "linearThreshold": 1e-4}),
    ],
)
def test_values_over_decades_have_a_logarithmic_scale(title: str, scale: Json) -> None:
    assert chart(title)["fieldConfig"]["defaults"]["custom"]["scaleDistribution"] == scale


def test_every_legend_has_the_last_value_and_the_ends() -> None:
    calcs = {(name, panel["title"]): panel["options"]["legend"]["calcs"] for name, panel in CHARTS}
    assert calcs == {key: ["lastNotNull", "min", "max"] for key in calcs}


def test_what_happened_to_runs_is_marked_on_every_chart() -> None:
    marks = {name: [mark["name"] for mark in annotations(shown)] for name, shown in DASHBOARDS.items()}
    assert marks["run-health"] == ["Alerts: page", "Alerts: warn"]
    assert marks["fleet"] == marks["acceptance"] == ["Incidents: page"]
    assert marks["service"] == ["Starts"]


def test_the_risk_of_a_collapse_has_its_newest_value_and_its_course_between_0_and_1() -> None:
    shown = [panel for panel in panels(RUN_HEALTH) if panel["title"].startswith("Risk of collapse")]
    assert [panel["type"] for panel in shown] == ["stat", "timeseries"]
    assert {target["expr"] for panel in shown for target in panel["targets"]} == {per_run(run("trmon_collapse_risk"))}
    course = shown[1]["fieldConfig"]["defaults"]
    assert (course["min"], course["max"]) == (0, 1)
    assert course["custom"]["thresholdsStyle"]["mode"] == "dashed+area"


def test_links_to_the_page_encode_the_names_of_runs() -> None:
    links = [link["url"] for link in RUN_HEALTH["links"] if link.get("url")]
    links += [link["url"] for panel in panels(RUN_HEALTH) for link in panel["fieldConfig"]["defaults"].get("links", ())]
    assert set(links) == {"${page}/runs/${project:percentencode}/${run:percentencode}"}


def test_links_between_dashboards_encode_the_names_of_runs() -> None:
    links = [link["url"] for _, panel in CHARTS for link in panel["fieldConfig"]["defaults"].get("links", ())]
    to_runs = {url for url in links if "/d/trmon-run-health" in url}
    assert len(to_runs) == 1
    assert all("&var-run=${__field.labels.run:percentencode}" in url for url in to_runs)


def test_the_details_of_a_run_load_when_they_are_opened() -> None:
    rows = {row["title"]: row["collapsed"] for row in RUN_HEALTH["panels"] if row["type"] == "row"}
    assert not rows["Does it learn?"]
    assert [title for title, is_collapsed in rows.items() if is_collapsed] == [
        "Are the log-probs valid?",
        "Is it stale, or are the steps too large?",
        "What is accepted",
        METHODS,
    ]


def test_acceptance_and_trmon_itself_are_apart() -> None:
    about = {
        name: {target["expr"] for panel in panels(DASHBOARDS[name]) for target in panel["targets"]}
        for name in DASHBOARDS
    }
    of_runs = {expr for expr in about["service"] if "project=~" in expr}
    assert of_runs == set()
    assert not any("process_" in expr or "trmon_reports_total" in expr for expr in about["acceptance"])
