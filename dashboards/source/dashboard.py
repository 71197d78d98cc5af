"""The common frame of the dashboards: fixed UID, read-only, links to each other and to the page, marks of alerts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from grafana_foundation_sdk.builders import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, QueryVariable, Row
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery, DashboardCursorSync, DashboardLinkType

from dashboards.source import promql
from dashboards.source.panels import ACT, WATCH
from dashboards.source.promql import DATASOURCE, own, per_run, run, runs

TAG = "trmon"

AnyPanel = stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel
COLORS = {"page": ACT, "warn": WATCH}


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
    others = DashboardLink("trmon").type(DashboardLinkType.DASHBOARDS).tags([TAG]).include_vars(True).keep_time(True)
    made = frame(uid, title, about).time("now-6h", "now").with_variable(promql.datasource()).link(others)
    for variable in (*promql.scrape(), *chosen, promql.page()):
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


def frame(uid: str, title: str, about: str) -> Dashboard:
    """Return a dashboard without panels and variables."""
    made = Dashboard(title).uid(uid).description(about).tags([TAG]).readonly()
    return made.timezone("browser").refresh("30s").tooltip(DashboardCursorSync.CROSSHAIR)


def page_link(title: str, path: str) -> DashboardLink:
    """Return the link to the service's own page at the top of a dashboard."""
    return (
        DashboardLink(title)
        .type(DashboardLinkType.LINK)
        .icon("external link")
        .url(f"${{page}}{path}")
        .target_blank(True)
    )


def alert_marks() -> list[Mark]:
    """Return a range for each of a run's alerts while it fires, by severity."""
    firing = {name: per_run(run("trmon_alert_active", severity=name), "rule") for name in COLORS}
    return [_mark(f"Alerts: {name}", COLORS[name], f"{expr} == 1") for name, expr in firing.items()]


def incident_mark(severity: str) -> Mark:
    """Return a range for each incident of a severity among the chosen runs while it is open."""
    opened = per_run(runs("trmon_incident_since_step", severity=severity), "cause")
    return _mark(f"Incidents: {severity}", COLORS[severity], f"{opened} >= 0", title_format="{{cause}}")


def restart_mark() -> Mark:
    """Return a mark for each start of an instance."""
    started = f"{own('process_start_time_seconds')} * 1000"
    formats = {"title_format": "started", "text_format": "{{instance}}"}
    return _mark("Starts", "blue", started, use_value_for_time=True, **formats)


def _mark(name: str, color: str, expr: str, **read: Any) -> Mark:
    return Mark(name=name, datasource=DATASOURCE, enable=True, icon_color=color, expr=expr, **read)


class Mark(Builder[AnnotationQuery], AnnotationQuery):
    """An annotation; the SDK's model lacks the fields that Grafana's Prometheus plugin reads besides the expression."""

    def __init__(
        self,
        *,
        title_format: str = "{{rule}}",
        text_format: str = "{{project}}/{{run}}",
        use_value_for_time: bool = False,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self._title_format, self._text_format = title_format, text_format
        self._use_value_for_time = use_value_for_time

    def build(self) -> AnnotationQuery:
        return self

    def to_json(self) -> dict[str, object]:
        formats = {"titleFormat": self._title_format, "textFormat": self._text_format, "step": "15s"}
        return super().to_json() | formats | ({"useValueForTime": True} if self._use_value_for_time else {})
