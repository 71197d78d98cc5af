"""The committed dashboards and their queries."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source.__main__ import FOLDER

Json = dict[str, Any]

DASHBOARDS: dict[str, Json] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
VARIABLE = re.compile(r"\$\{?(\w+)(?::\w+)?\}?")


@dataclass(frozen=True)
class Asked:
    """One expression: its text, its place, and whether it is a range query or an instant query."""

    place: str
    expression: str
    over_time: bool


def panels(dashboard: Json) -> list[Json]:
    return [
        panel for outer in dashboard["panels"] for panel in (outer, *outer.get("panels", ())) if panel["type"] != "row"
    ]


def variables(dashboard: Json, *, kind: str = "query") -> list[Json]:
    return [variable for variable in dashboard["templating"]["list"] if variable["type"] == kind]


def annotations(dashboard: Json) -> list[Json]:
    found: list[Json] = dashboard.get("annotations", {}).get("list", [])
    return found


def asked() -> Iterator[Asked]:
    """Yield every expression of every panel and annotation."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                place = f"{name}: {panel['title']} {target['refId']}"
                is_instant = target.get("instant", False)
                yield Asked(place, target["expr"], over_time=not is_instant)
        for annotation in annotations(dashboard):
            yield Asked(f"{name}: {annotation['name']}", annotation["expr"], over_time=True)


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Return a text with Grafana's variables replaced. Errors: KeyError for a variable without a value."""
    return VARIABLE.sub(lambda match: values[match.group(1)], text)


def known_to_grafana(dashboard: Json) -> Json:
    """Return what Grafana's published model keeps of a dashboard: it drops the fields that it does not know."""
    plugins.register_default_plugins()
    kept: Json = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(dashboard))))
    return kept
