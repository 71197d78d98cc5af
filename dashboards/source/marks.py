"""Annotations: the alerts of the run, drawn over every chart of its dashboard."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from dashboards.source.bands import ACT, WATCH
from dashboards.source.promql import per_run, run
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


class _FromPrometheus(AnnotationQuery):
    """The SDK's model lacks the fields that Grafana's Prometheus plugin reads beside the expression."""

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"titleFormat": "{{rule}}", "textFormat": "{{project}}/{{run}}", "step": "15s"}


def alert_marks() -> list[AlertMark]:
    """Return the annotations of a run's alerts, by severity."""
    return [AlertMark(severity) for severity in COLORS]
