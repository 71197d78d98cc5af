"""Links: from a run's series to its dashboard, from its row to its page."""

from __future__ import annotations

from dashboards.source.dashboard import RUN_HEALTH_UID
from dashboards.source.panels import link


def run_health(labels: str) -> str:
    """Return the URL of a run's dashboard; `labels` is the Grafana variable with the run's labels."""
    return (
        f"/d/{RUN_HEALTH_UID}?var-datasource=${{datasource}}&${{__url_time_range}}"
        f"&var-project=${{{labels}.project:percentencode}}&var-run=${{{labels}.run:percentencode}}"
    )


TO_RUN = link("Run health", run_health("__field.labels"))
"""From a series."""
STEP_ON_PAGE = (
    "${page}/runs/${__data.fields.project:percentencode}/${__data.fields.run:percentencode}?step=${__value.raw}"
)
"""From a row's step."""
