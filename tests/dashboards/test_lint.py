"""The dashboards pass the rules of dashboard-linter, and each rule detects its violation."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.dashboards import lint
from tests.dashboards.documents import DASHBOARDS, Json, panels


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_passes_every_rule(name: str) -> None:
    assert [f"{rule.__name__}: {found}" for rule in lint.RULES for found in rule(DASHBOARDS[name])] == []


def expression(text: str) -> Callable[[Json], None]:
    return lambda dashboard: panels(dashboard)[0]["targets"][0].update(expr=text)


def variable(name: str, /, **changed: object) -> Callable[[Json], None]:
    def change(dashboard: Json) -> None:
        [found] = [one for one in dashboard["templating"]["list"] if one["name"] == name]
        found.update(changed)

    return change


def panel(**changed: object) -> Callable[[Json], None]:
    return lambda dashboard: panels(dashboard)[0].update(changed)


BOTH = 'job=~"$job", instance=~"$instance"'
NO_INSTANCE = 'on () b{job=~"$job"}'
FAULTS: list[tuple[str, lint.Rule, Callable[[Json], None]]] = [
    (
        "a data source variable with another name",
        lint.has_one_datasource_variable,
        variable("datasource", name="prometheus"),
    ),
    ("a job variable with a single value", lint.has_job_and_instance_variables, variable("job", multi=False)),
    ("a variable without a function", lint.variables_query_promql, variable("run", query="trmon_step")),
    ("a variable that never refreshes", lint.variables_follow_the_time_range, variable("run", refresh=1)),
    (
        "a data source by its UID",
        lint.panels_use_the_datasource_variable,
        panel(datasource={"type": "prometheus", "uid": "abc"}),
    ),
    ("a panel without a description", lint.panels_say_what_they_show, panel(description="")),
    ("an incomplete expression", lint.expressions_parse, expression("sum(")),
    ("a rate over a fixed range", lint.rates_span_the_rate_interval, expression(f"rate(a_total{{{BOTH}}}[5m])")),
    ("a selector without a job", lint.selectors_match_job_and_instance, expression('a{instance=~"$instance"}')),
    ("a nested selector", lint.selectors_match_job_and_instance, expression(f"max(a{{{BOTH}}} and {NO_INSTANCE})")),
    ("a counter's maximum", lint.counters_are_rated, expression(f"max_over_time(a_total{{{BOTH}}}[$__range])")),
    ("an editable dashboard", lint.is_not_editable, lambda dashboard: dashboard.update(editable=True)),
]


def test_every_rule_detects_its_violations() -> None:
    for fault, rule, spoil in FAULTS:
        dashboard = copy.deepcopy(DASHBOARDS["fleet"])
        spoil(dashboard)
        assert len(list(rule(dashboard))) == 1, fault
    assert {rule for _, rule, _ in FAULTS} == set(lint.RULES)
