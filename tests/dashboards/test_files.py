"""The committed files match the generated ones and Grafana's import format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.source.files import FOLDER, generated
from tests.dashboards.documents import DASHBOARDS, panels
from tests.fixtures.json_schema import schema_errors

SCHEMA = json.loads((Path(__file__).parent / "dashboard.schema.json").read_text())


@pytest.mark.parametrize(("path", "text"), generated().items())
def test_a_file_matches_its_source(path: str, text: str) -> None:
    assert (FOLDER / path).read_text() == text, "run `make dashboards`"


def test_every_dashboard_file_is_generated() -> None:
    assert {f"{name}.json" for name in DASHBOARDS} == {path for path in generated() if path.endswith(".json")}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_grafanas_import_format(name: str) -> None:
    assert schema_errors(DASHBOARDS[name], SCHEMA) == []


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
