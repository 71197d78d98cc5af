"""The committed files match the generated ones and Grafana's import format."""

from __future__ import annotations

import copy

import pytest

from dashboards.source.__main__ import FOLDER, generated
from tests.dashboards.documents import DASHBOARDS, annotations, known_to_grafana, panels

OF_THE_PROMETHEUS_PLUGIN = ("titleFormat", "textFormat", "step", "useValueForTime")
"""Fields of annotations that Grafana's model of dashboards leaves to the data source's plugin."""


@pytest.mark.parametrize(("path", "text"), generated().items())
def test_a_file_matches_its_source(path: str, text: str) -> None:
    assert (FOLDER / path).read_text() == text, "run `make dashboards`"


def test_every_dashboard_file_is_generated() -> None:
    committed = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json")}
    assert committed == {path for path in generated() if path.endswith(".json")}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafanas_published_model_knows_every_field(name: str) -> None:
    shown = copy.deepcopy(DASHBOARDS[name])
    for mark in annotations(shown):
        for field in OF_THE_PROMETHEUS_PLUGIN:
            mark.pop(field, None)
    assert known_to_grafana(shown) == shown


@pytest.mark.parametrize("place", ["panel", "options", "target", "dashboard"])
def test_a_field_that_grafana_does_not_know_is_detected(place: str) -> None:
    shown = copy.deepcopy(DASHBOARDS["fleet"])
    panel = panels(shown)[0]
    {"panel": panel, "options": panel["options"], "target": panel["targets"][0], "dashboard": shown}[place][
        "made_up"
    ] = 1
    assert known_to_grafana(shown) != shown


def test_uids_and_titles_are_unique() -> None:
    for key in ("uid", "title"):
        assert len({dashboard[key] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panel_ids_and_positions_are_unique(name: str) -> None:
    shown = panels(DASHBOARDS[name])
    assert len({panel["id"] for panel in shown}) == len(shown)
    covered = [cell for panel in shown for cell in _cells(panel["gridPos"])]
    assert len(set(covered)) == len(covered)


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    columns = range(place["x"], place["x"] + place["w"])
    return [(column, row) for column in columns for row in range(place["y"], place["y"] + place["h"])]
