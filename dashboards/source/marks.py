"""Annotations, drawn over every chart of a dashboard: the alerts of the run, the incidents of the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from dashboards.source.bands import ACT, WATCH
from dashboards.source.promql import own, per_run, run, runs
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


class RestartMark(Builder[AnnotationQuery]):
    """A mark for each start of an instance."""

    def build(self) -> AnnotationQuery:
        """Return the annotation."""
        return _FromPrometheus(
            name="Starts",
            datasource=DATASOURCE,
            enable=True,
            icon_color="blue",
            expr=f"{own('process_start_time_seconds')} * 1000",
            title_format="started",
            text_format="{{instance}}",
            use_value_for_time=True,
        )


class _FromPrometheus(AnnotationQuery):
    """The SDK's model lacks the fields that Grafana's Prometheus plugin reads beside the expression."""

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

    def to_json(self) -> dict[str, object]:
        formats = {"titleFormat": self._title_format, "textFormat": self._text_format, "step": "15s"}
        return super().to_json() | formats | ({"useValueForTime": True} if self._use_value_for_time else {})


def alert_marks() -> list[AlertMark]:
    """Return the annotations of a run's alerts, by severity."""
    return [AlertMark(severity) for severity in COLORS]
