"""The variables of the dashboards: where from, which scrape, which runs; each list is narrowed by those before it."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableHide, VariableRefresh, VariableSort

from dashboards.source.promql import ONE_RUN, SCRAPED

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
ANYTHING = ".+"
EVERYWHERE = "trmon_worker_failures_total"
"""A metric that each instance has, whether it answers requests, works or both."""


def datasource() -> DatasourceVariable:
    """Return the choice of the Prometheus that every panel asks."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def scrape() -> list[QueryVariable]:
    """Return the choice of scrape jobs and of their instances."""
    return [
        _several("job", "Job", f"label_values({EVERYWHERE}, job)"),
        _several("instance", "Instance", f'label_values({EVERYWHERE}{{job=~"$job"}}, instance)'),
    ]


def several_runs() -> list[QueryVariable]:
    """Return the choice of projects and of their runs, all at first."""
    return [
        _several("project", "Project", f"label_values(trmon_run_state{{{SCRAPED}}}, project)"),
        _several("run", "Run", f'label_values(trmon_run_state{{{SCRAPED}, project=~"$project"}}, run)'),
    ]


def one_run() -> list[QueryVariable]:
    """Return the choice of one run and of the trainer's numbers shown of it."""
    return [
        _query("project", "Project", f"label_values(trmon_run_state{{{SCRAPED}}}, project)"),
        _query("run", "Run", f'label_values(trmon_run_state{{{SCRAPED}, project="$project"}}, run)'),
        _several("scalar", "Trainer's number", f"label_values(trmon_scalar{{{ONE_RUN}}}, name)"),
    ]


def page() -> QueryVariable:
    """Return the hidden variable that holds the service's own page, which panels link to."""
    query = f"label_values(trmon_info{{{SCRAPED}}}, page_url)"
    return _query("page", "Page", query).hide(VariableHide.HIDE_VARIABLE)


def _several(name: str, label: str, query: str) -> QueryVariable:
    return _query(name, label, query).multi(True).include_all(True).all_value(ANYTHING)


def _query(name: str, label: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )
