"""The committed dashboards and alert rules, and the PromQL that they ask."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
import yaml
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


def provisioned(kind: str) -> Json:
    document: Json = yaml.safe_load((FOLDER / "provisioning" / kind / "trmon.yml").read_text())
    assert document["apiVersion"] == 1
    return document


[GROUP] = provisioned("alerting")["groups"]
ALERTS: list[Json] = GROUP["rules"]

RATE_INTERVAL_SECONDS = 8_869_990
SAMPLES = {"__rate_interval": f"{RATE_INTERVAL_SECONDS}s", "__range": "6069770s", "__interval": "4867856s"}
"""Durations that no author writes, so that the variables they stand for are recognisable."""


def parsed(expression: str) -> promql.Expr:
    """Return PromQL with Grafana's variables. Errors: ValueError for what is none."""
    names = {match.group(1) for match in VARIABLE.finditer(expression)}
    return promql.parse(substituted(expression, {name: f"${name}" for name in names} | SAMPLES))


def nodes(
    root: promql.Expr, parents: tuple[promql.Expr, ...] = ()
) -> Iterator[tuple[promql.Expr, tuple[promql.Expr, ...]]]:
    """Yield every node of an expression with its ancestors, the nearest last."""
    yield root, parents
    for child in _children(root):
        yield from nodes(child, (*parents, root))


def _children(node: promql.Expr) -> list[promql.Expr]:
    match node:
        case promql.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql.Call():
            return list(node.args)
        case promql.AggregateExpr():
            return [node.expr] if node.param is None else [node.param, node.expr]
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return [node.expr]
        case promql.MatrixSelector():
            return [node.vector_selector]
    return []
