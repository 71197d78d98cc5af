"""The expressions of the panels: selectors that every variable of a dashboard filters, and runs told apart once.

Any number of API replicas may show the same run: `per_run` takes the largest, so that a run is one series however many
are scraped.
"""

from __future__ import annotations

from collections.abc import Mapping

SCRAPED = 'job=~"$job", instance=~"$instance"'
ANY_RUN = f'{SCRAPED}, project=~"$project", run=~"$run"'
ONE_RUN = f'{SCRAPED}, project="$project", run="$run"'

OF_A_RUN = "project, run"


def own(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the service itself; a label's alternatives are parted by |."""
    return _selector(metric, SCRAPED, labels)


def runs(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the chosen runs."""
    return _selector(metric, ANY_RUN, labels)


def run(metric: str, **labels: str) -> str:
    """Return the selector of a metric of the one chosen run."""
    return _selector(metric, ONE_RUN, labels)


def per_run(selector: str, *labels: str) -> str:
    """Return one series of each run and, if labels are given, of each of their values."""
    return f"max by ({', '.join((OF_A_RUN, *labels))}) ({selector})"


def rate(counter: str, *, by: str) -> str:
    """Return the increase of a counter each second, summed by a label."""
    return f"sum by ({by}) (rate({counter}[$__rate_interval]))"


def quantile(q: float, histogram: str) -> str:
    """Return a quantile of a histogram, NaN where nothing was observed."""
    return f"histogram_quantile({q}, sum by (le) (rate({own(f'{histogram}_bucket')}[$__rate_interval])))"


def or_zero(expression: str) -> str:
    """Return an expression that is zero, without labels, where it would be empty."""
    return f"({expression}) or on () vector(0)"


def active_mask_rate(mask_rate: str, threshold: str) -> str:
    """Return the mask rate of the policy in force: shadows have no threshold."""
    return f"{mask_rate} and on (project, run, policy) {threshold}"


def _selector(metric: str, chosen: str, labels: Mapping[str, str]) -> str:
    matchers = [f'{name}{"=~" if "|" in value else "="}"{value}"' for name, value in labels.items()]
    return f"{metric}{{{', '.join((chosen, *matchers))}}}"
