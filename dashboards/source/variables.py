"""The variables of the dashboards: data source, job, instance, project and run; each list filters the next ones."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableHide, VariableRefresh, VariableSort

from dashboards.source.promql import ONE_RUN, SCRAPED

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
ANYTHING = ".+"
EVERYWHERE = "trmon_worker_failures_total"
"""A metric that every instance exports, API or worker."""


def datasource() -> DatasourceVariable:
    """Return the variable of the Prometheus data source."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def scrape() -> list[QueryVariable]:
    """Return the variables of the scrape job and its instances."""
    return [
        _several("job", "Job", f"label_values({EVERYWHERE}, job)"),
        _several("instance", "Instance", f'label_values({EVERYWHERE}{{job=~"$job"}}, instance)'),
    ]


def several_runs() -> list[QueryVariable]:
    """Return the variables of the projects and their runs, all by default."""
    return [
        _several("project", "Project", f"label_values(trmon_run_state{{{SCRAPED}}}, project)"),
        _several("run", "Run", f'label_values(trmon_run_state{{{SCRAPED}, project=~"$project"}}, run)'),
    ]


def one_run() -> list[QueryVariable]:
    """Return the variables of the run and of its trainer metrics to show."""
    return [
        _query("project", "Project", f"label_values(trmon_run_state{{{SCRAPED}}}, project)"),
        _query("run", "Run", f'label_values(trmon_run_state{{{SCRAPED}, project="$project"}}, run)'),
        _several("scalar", "Trainer's number", f"label_values(trmon_scalar{{{ONE_RUN}}}, name)"),
    ]


def page() -> QueryVariable:
    """Return the hidden variable with the URL of the service's page, used in links."""
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
