"""The shipped dashboards: Classic JSON, generated; see dashboards/ in the repository."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

Dashboard = dict[str, Any]
"""The JSON model of a dashboard; `uid` identifies it."""


def shipped() -> list[Dashboard]:
    """Return every dashboard by its file name."""
    found = sorted((path for path in _folder().iterdir() if path.name.endswith(".json")), key=lambda path: path.name)
    return [json.loads(path.read_text("utf-8")) for path in found]


def _folder() -> Traversable:
    """Return their folder: beside this module in an installed package, at the top of a checkout."""
    installed = files("trmon.grafana") / "dashboards"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "dashboards"
