"""What panels show besides their queries: the first row of a run and links."""

from __future__ import annotations

from tests.dashboards.documents import DASHBOARDS, panels

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
