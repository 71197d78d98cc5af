"""The common frame of the dashboards: fixed UID, read-only, auto-refresh, links to each other and to the page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from grafana_foundation_sdk.builders import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, QueryVariable, Row
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DashboardLinkType

from dashboards.source import variables

TAG = "trmon"
RUN_HEALTH_UID = "trmon-run-health"

AnyPanel = stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel


def dashboard(
    uid: str,
    title: str,
    about: str,
    *,
    chosen: Iterable[QueryVariable],
    rows: Mapping[str, Sequence[AnyPanel]],
    collapsed: Collection[str] = (),
) -> Dashboard:
    """Return a dashboard; panels of the row without a title come first, those of collapsed rows load when opened."""
    made = (
        Dashboard(title)
        .uid(uid)
        .description(about)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(variables.datasource())
        .link(_others())
    )
    for variable in (*variables.scrape(), *chosen, variables.page()):
        made.with_variable(variable)
    ids = count(1)
    for name, panels in rows.items():
        row = Row(name).id(next(ids)).collapsed(name in collapsed)
        if name in collapsed:
            for panel in panels:
                row.with_panel(panel.id(next(ids)))
        if name:
            made.with_row(row)
        if name not in collapsed:
            for panel in panels:
                made.with_panel(panel.id(next(ids)))
    return made


def page_link(title: str, path: str) -> DashboardLink:
    """Return the link to the service's own page at the top of a dashboard."""
    return (
        DashboardLink(title)
        .type(DashboardLinkType.LINK)
        .icon("external link")
        .url(f"${{page}}{path}")
        .target_blank(True)
    )


def _others() -> DashboardLink:
    """Return the links to the other dashboards, with the same time range and variables."""
    return DashboardLink("trmon").type(DashboardLinkType.DASHBOARDS).tags([TAG]).include_vars(True).keep_time(True)
