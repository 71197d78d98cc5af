"""The shipped dashboards, and their push with a folder; what is current is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trmon.grafana.api import if_there

if TYPE_CHECKING:
    from grafana_client.api import GrafanaApi


Dashboard = dict[str, Any]
FOLDER_UID = "trmon"
FOLDER_TITLE = "trmon"
OF_GRAFANA = ("id", "version")
"""Fields that Grafana adds to a dashboard when it saves it."""


def shipped() -> list[Dashboard]:
    """Return every dashboard by its file name."""
    installed = files("trmon.grafana") / "dashboards"
    folder: Traversable = installed if installed.is_dir() else Path(__file__).parents[2] / "dashboards"
    found = sorted((path for path in folder.iterdir() if path.name.endswith(".json")), key=lambda path: path.name)
    return [json.loads(path.read_text("utf-8")) for path in found]


class Change(Enum):
    """The outcome of one push."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Pushed:
    """One object in Grafana and its outcome; `path` is its address in the browser."""

    kind: str
    title: str
    change: Change
    path: str


def push(api: GrafanaApi, dashboards: list[Dashboard]) -> Iterator[Pushed]:
    """Create or update every object in order and yield each outcome."""
    yield _folder(api)
    for dashboard in dashboards:
        found = if_there(partial(api.dashboard.get_dashboard, dashboard["uid"]))
        change = Change.CREATED
        if found is not None:
            saved = {name: value for name, value in found["dashboard"].items() if name not in OF_GRAFANA}
            is_same = saved == dashboard and found["meta"].get("folderUid") == FOLDER_UID
            change = Change.UNCHANGED if is_same else Change.UPDATED
        if change is not Change.UNCHANGED:
            message = {"message": "trmon grafana push", "overwrite": True}
            api.dashboard.update_dashboard({"dashboard": dashboard, "folderUid": FOLDER_UID, **message})
        yield Pushed("dashboard", dashboard["title"], change, f"/d/{dashboard['uid']}")


def _folder(api: GrafanaApi) -> Pushed:
    change = Change.UNCHANGED
    if if_there(lambda: api.folder.get_folder(FOLDER_UID)) is None:
        api.folder.create_folder(FOLDER_TITLE, uid=FOLDER_UID)
        change = Change.CREATED
    return Pushed("folder", FOLDER_TITLE, change, f"/dashboards/f/{FOLDER_UID}")
