"""Annotations, drawn over every chart of a dashboard: the alerts of the run, the incidents of the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from dashboards.source.bands import ACT, WATCH
from dashboards.source.promql import per_run, run, runs
from dashboards.source.variables import DATASOURCE

COLORS = {"page": ACT, "warn": WATCH}


@dataclass(frozen=True)
class AlertMark(Builder[AnnotationQuery]):
    """A range for each alert of a severity while it fires; a builder, as the SDK requires."""

    severity: str

    def build(self) -> AnnotationQuery:
        """Return the annotation."""
        firing = per_run(run("trmon_alert_active", severity=self.severity), "rule")
        return _FromPrometheus(
            name=f"Alerts: {self.severity}",
            datasource=DATASOURCE,
            enable=True,
            icon_color=COLORS[self.severity],
            expr=f"{firing} == 1",
        )


@dataclass(frozen=True)
class IncidentMark(Builder[AnnotationQuery]):
    """A range for each incident of a severity among the chosen runs while it is open."""

    severity: str

    def build(self) -> AnnotationQuery:
        """Return the annotation."""
        opened = per_run(runs("trmon_incident_since_step", severity=self.severity), "cause")
        return _FromPrometheus(
            name=f"Incidents: {self.severity}",
            datasource=DATASOURCE,
            enable=True,
            icon_color=COLORS[self.severity],
            expr=f"{opened} >= 0",
            title_format="{{cause}}",
        )


class _FromPrometheus(AnnotationQuery):
    """The SDK's model lacks the fields that Grafana's Prometheus plugin reads beside the expression."""

    def __init__(self, *, title_format: str = "{{rule}}", **known: Any) -> None:
        super().__init__(**known)
        self._title_format = title_format

    def to_json(self) -> dict[str, object]:
        formats = {"titleFormat": self._title_format, "textFormat": "{{project}}/{{run}}"}
        return super().to_json() | formats | {"step": "15s"}


def alert_marks() -> list[AlertMark]:
    """Return the annotations of a run's alerts, by severity."""
    return [AlertMark(severity) for severity in COLORS]
