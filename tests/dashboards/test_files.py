"""The committed files match the generated ones and Grafana's import format."""

from __future__ import annotations

import copy

from dashboards.source.__main__ import FOLDER, generated
from tests.dashboards.documents import DASHBOARDS, annotations, known_to_grafana, panels

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
