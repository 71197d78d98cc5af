"""A port of grafana/dashboard-linter's rules, on the dashboard model and a PromQL parser.

Each rule yields its violations as text; the rules for Loki are omitted, since no panel queries it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import promql_parser as promql

from tests.dashboards.documents import VARIABLE, Json, panels, substituted, variables

Rule = Callable[[Json], Iterator[str]]

RATE_INTERVAL_SECONDS = 8_869_990
SAMPLES = {"__rate_interval": f"{RATE_INTERVAL_SECONDS}s", "__range": "6069770s", "__interval": "4867856s"}
"""Durations that no author writes, so that the variables they stand for are recognisable."""
RATES = ("rate", "irate")
COUNTING = (*RATES, "increase")
UNITS = {"none", "short", "percentunit", "s", "bytes", "cps", "string"}
"""The Grafana units that our panels use; the linter knows all of them."""
ASKED = re.compile(r"(label_names|label_values|metrics|query_result)\((.+)\)")


def has_one_datasource_variable(dashboard: Json) -> Iterator[str]:
    """template-datasource-rule: one variable, named `datasource` and labelled `Data source`."""
    found = [(variable["name"], variable["label"]) for variable in variables(dashboard, kind="datasource")]
    if found != [("datasource", "Data source")]:
        yield f"data source variables: {found}"


def has_job_and_instance_variables(dashboard: Json) -> Iterator[str]:
    """template-job-rule and template-instance-rule: multi-valued query variables whose "all" value is `.+`."""
    known = {variable["name"]: variable for variable in variables(dashboard)}
    for name in ("job", "instance"):
        variable = known.get(name, {})
        found = (
            variable.get("label"),
            variable.get("multi"),
            variable.get("allValue"),
            variable.get("datasource", {}).get("uid"),
        )
        if found != (name.title(), True, ".+", "${datasource}"):
            yield f"variable {name}: {found}"


def variables_query_promql(dashboard: Json) -> Iterator[str]:
    """template-label-promql-rule: a known function on a selector that parses."""
    for variable in variables(dashboard):
        asked = ASKED.fullmatch(variable["query"])
        if asked is None:
            yield f"variable {variable['name']}: {variable['query']}"
        elif (wrong := _unreadable(asked.group(2).rpartition(",")[0])) is not None:
            yield f"variable {variable['name']}: {wrong}"


def variables_follow_the_time_range(dashboard: Json) -> Iterator[str]:
    """template-on-time-change-reload-rule: values are refreshed when the time range changes."""
    for variable in variables(dashboard):
        if variable.get("refresh") != 2:
            yield f"variable {variable['name']} refreshes {variable.get('refresh')}"


def panels_use_the_datasource_variable(dashboard: Json) -> Iterator[str]:
    """panel-datasource-rule, also for each target."""
    for panel in panels(dashboard):
        for asking in (panel, *panel["targets"]):
            if asking["datasource"]["uid"] != "${datasource}":
                yield f"{panel['title']} queries {asking['datasource']}"


def panels_say_what_they_show(dashboard: Json) -> Iterator[str]:
    """panel-title-description-rule, panel-units-rule and panel-no-targets-rule."""
    for panel in panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']} lacks a title or a description"
        if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
            yield f"{panel['title']} has the unit {panel['fieldConfig']['defaults'].get('unit')}"
        if not panel.get("targets"):
            yield f"{panel['title']} has no query"


def expressions_parse(dashboard: Json) -> Iterator[str]:
    """target-promql-rule."""
    for place, expression in _expressions(dashboard):
        wrong = _unreadable(expression)
        if wrong is not None:
            yield f"{place}: {wrong}"


def rates_span_the_rate_interval(dashboard: Json) -> Iterator[str]:
    """target-rate-interval-rule: rate and irate use $__rate_interval."""
    for place, expression in _expressions(dashboard):
        for node, parents in nodes(_parsed(expression)):
            if not isinstance(node, promql.MatrixSelector):
                continue
            caller = parents[-1]
            rates = isinstance(caller, promql.Call) and caller.func.name in RATES
            if rates and node.range.total_seconds() != RATE_INTERVAL_SECONDS:
                yield f"{place}: {node.prettify()}"


def selectors_match_job_and_instance(dashboard: Json) -> Iterator[str]:
    """target-job-rule and target-instance-rule: every selector matches the variable by regular expression."""
    for place, expression in _expressions(dashboard):
        for node, _ in nodes(_parsed(expression)):
            if isinstance(node, promql.VectorSelector):
                found = [(m.name, m.value) for m in node.matchers.matchers if m.op == promql.MatchOp.Re]
                for name in ("job", "instance"):
                    if (name, f"${name}") not in found:
                        yield f"{place}: {node.prettify()} lacks {name}"


def counters_are_rated(dashboard: Json) -> Iterator[str]:
    """target-counter-agg-rule: counters ending in _total are wrapped in rate, irate or increase."""
    for place, expression in _expressions(dashboard):
        for node, parents in nodes(_parsed(expression)):
            if isinstance(node, promql.VectorSelector) and (node.name or "").endswith("_total"):
                caller = parents[-2] if len(parents) > 1 else None
                if not (isinstance(caller, promql.Call) and caller.func.name in COUNTING):
                    yield f"{place}: {node.prettify()}"


def is_not_editable(dashboard: Json) -> Iterator[str]:
    """uneditable-dashboard."""
    if dashboard["editable"]:
        yield "it is editable"


RULES: tuple[Rule, ...] = (
    has_one_datasource_variable,
    has_job_and_instance_variables,
    variables_query_promql,
    variables_follow_the_time_range,
    panels_use_the_datasource_variable,
    panels_say_what_they_show,
    expressions_parse,
    rates_span_the_rate_interval,
    selectors_match_job_and_instance,
    counters_are_rated,
    is_not_editable,
)


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


def _expressions(dashboard: Json) -> Iterator[tuple[str, str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


def _parsed(expression: str) -> promql.Expr:
    names = {match.group(1) for match in VARIABLE.finditer(expression)}
    return promql.parse(substituted(expression, {name: f"${name}" for name in names} | SAMPLES))


def _unreadable(expression: str) -> str | None:
    try:
        _parsed(expression)
    except ValueError as error:
        return f"{expression}: {error}"
    return None
