"""The expressions and variables of the dashboards: selectors filtered by every variable, one series per run.

Several API replicas may export the same run: `per_run` takes the maximum, so that a run is one series however many
replicas are scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableHide, VariableRefresh, VariableSort

SCRAPED = 'job=~"$job", instance=~"$instance"'
ANY_RUN = f'{SCRAPED}, project=~"$project", run=~"$run"'
ONE_RUN = f'{SCRAPED}, project="$project", run="$run"'

OF_A_RUN = "project, run"
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
ANYTHING = ".+"
EVERYWHERE = "trmon_worker_failures_total"
"""A metric that every instance exports, API or worker."""


def own(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the service itself; | separates a label's alternatives."""
    return _selector(metric, SCRAPED, labels)


def runs(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the chosen runs."""
    return _selector(metric, ANY_RUN, labels)


def run(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the one chosen run."""
    return _selector(metric, ONE_RUN, labels)


def per_run(selector: str, *labels: str) -> str:
    """Return one series per run or, if labels are given, per run and label values."""
    return f"max by ({', '.join((OF_A_RUN, *labels))}) ({selector})"


def rate(counter: str, *, by: str) -> str:
    """Return the per-second rate of a counter, summed by a label."""
    return f"sum by ({by}) (rate({counter}[$__rate_interval]))"


def quantile(q: float, histogram: str) -> str:
    """Return a quantile of a histogram, NaN if it has no observations."""
    return f"histogram_quantile({q}, sum by (le) (rate({own(f'{histogram}_bucket')}[$__rate_interval])))"


def or_zero(expression: str) -> str:
    """Return an expression that is zero, without labels, instead of empty."""
    return f"({expression}) or on () vector(0)"


def active_mask_rate(selector: Callable[[str], str]) -> str:
    """Return the mask rate of the active policy: shadow policies have no threshold. Args: selector: runs or run."""
    return f"{selector('trmon_mask_rate')} and on (project, run, policy) {selector('trmon_threshold')}"


def _selector(metric: str, chosen: str, labels: Mapping[str, str]) -> str:
    matchers = [f'{name}{"=~" if "|" in value else "="}"{value}"' for name, value in labels.items()]
    return f"{metric}{{{', '.join((chosen, *matchers))}}}"


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
