"""The dashboard *Run by step*: the courses of one run over its steps, read from trmon's PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, trend
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import ScaleDistribution, VisibilityMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

from dashboards.source import sql
from dashboards.source.dashboard import TAG

DATASOURCE = DataSourceRef(type_val="grafana-postgresql-datasource", uid="${datasource}")


def by_step() -> Dashboard:
    """Return the dashboard."""
    made = (
        Dashboard("trmon / Run by step")
        .uid("trmon-run-by-step")
        .description("The courses of one run over its steps instead of time, from the database: no step is missing.")
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            DatasourceVariable("datasource").label("PostgreSQL of trmon").type("grafana-postgresql-datasource")
        )
    )
    for name, label, query in (
        ("project", "Project", sql.PROJECTS),
        ("run", "Run", sql.RUNS),
        ("scalar", "Trainer's number", sql.SCALARS),
    ):
        made.with_variable(_variable(name, label, query))
    for i, panel in enumerate(_panels(), 1):
        made.with_panel(panel.id(i))
    return made


def _panels() -> list[trend.Panel]:
    kl = sql.signal_by_step("kl_k3", of_primary_pair=True)
    ess = sql.signal_by_step("ess_token", of_primary_pair=True)
    return [
        _trend("Reward", "Mean reward.", sql.signal_by_step("reward_mean")),
        _trend("KL per token", "kl_k3 of the primary pair, nats per token.", kl, is_log=True),
        _trend("Rejected", "Share that the active policy rejects.", sql.mask_rate_by_step(), unit="percentunit").min(0),
        _trend("Effective share of tokens", "ess_token of the primary pair.", ess, unit="percentunit").min(0).max(1),
        _trend("Response length", "Mean valid tokens of a response.", sql.signal_by_step("response_length_mean")).min(
            0
        ),
        _trend("$scalar", "A number that the trainer logs.", sql.scalar_by_step("${scalar:sqlstring}")),
    ]


def _trend(title: str, about: str, query: str, *, unit: str = "short", is_log: bool = False) -> trend.Panel:
    panel = (
        trend.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .span(12)
        .height(8)
        .unit(unit)
        .line_width(1)
        .show_points(VisibilityMode.NEVER)
        .x_field("step")
        .with_target(_Query(query))
    )
    if is_log:
        panel.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    return panel


def _variable(name: str, label: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name).label(label).datasource(DATASOURCE).query(query).refresh(VariableRefresh.ON_DASHBOARD_LOAD)
    )


@dataclass(frozen=True)
class _Query(Builder[Dataquery], Dataquery):
    """A table that SQL returns; the SDK has no model of the PostgreSQL plugin's queries."""

    query: str

    def build(self) -> Dataquery:
        """Return the target."""
        return self

    def to_json(self) -> dict[str, object]:
        """Return the target as Grafana stores it."""
        return {
            "refId": "A",
            "datasource": {"type": DATASOURCE.type_val, "uid": DATASOURCE.uid},
            "format": "table",
            "editorMode": "code",
            "rawQuery": True,
            "rawSql": self.query,
        }
