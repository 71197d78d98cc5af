"""The dashboard *Run by step*: one run over its steps, by SQL from trmon's PostgreSQL.

A batch stores its signals as little-endian float64 in one column, and their names once for many batches, in `name_set`.
"""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, trend
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import ScaleDistribution, VisibilityMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from dashboards.source.dashboard import frame

POINTS = 1000
"""Points of a line; longer runs are averaged."""
PROJECTS = "SELECT name FROM project ORDER BY name"
RUNS = "SELECT name FROM run WHERE project = ${project:sqlstring} AND NOT archived ORDER BY id DESC"
SCALARS = """SELECT DISTINCT n.name FROM run r JOIN batch b ON b.attempt_id = r.attempt_id
JOIN name_set s ON s.id = b.scalar_names CROSS JOIN LATERAL json_array_elements_text(s.names::json) AS n(name)
WHERE r.project = ${project:sqlstring} AND r.name = ${run:sqlstring} ORDER BY n.name"""
_ATTEMPT = """newest AS (
  SELECT attempt_id FROM run WHERE project = ${project:sqlstring} AND name = ${run:sqlstring}
)"""
_POINTS = f"""SELECT min(step) AS step, avg(value) AS value FROM numbers
GROUP BY step / (SELECT greatest(1, (max(step) - min(step)) / {POINTS}) FROM numbers) ORDER BY 1"""  # noqa: S608 - a constant
_MANTISSA = " | ".join(
    ["((get_byte(packed, place + 6) & 15)::bigint << 48)"]
    + [f"(get_byte(packed, place + {i})::bigint << {8 * i})" for i in range(5, -1, -1)]
)
DATASOURCE = DataSourceRef(type_val="grafana-postgresql-datasource", uid="${datasource}")


def signal_by_step(stem: str, *, of_primary_pair: bool = False) -> str:
    """Return the query of a signal; `stem` is its name without the pair if it is one of the primary pair."""
    name = f"b.primary_pair || '_{stem}'" if of_primary_pair else f"'{stem}'"
    names = ", ".join(f"'{pair}_{stem}'" for pair in ("mismatch", "staleness", "total"))
    return _by_step("signals", names if of_primary_pair else name, name)


def mask_rate_by_step() -> str:
    """Return the query of the share that the active policy rejects."""
    return f"""WITH {_ATTEMPT}, numbers AS (
  SELECT d.step, d.mask_rate AS value FROM decision d JOIN newest ON d.attempt_id = newest.attempt_id
  WHERE d.role = 'active' AND d.update_index = -1
)
{_POINTS}"""  # noqa: S608 - Grafana quotes its variables


def _by_step(column: str, names: str, name: str) -> str:
    """Return the query of one packed value; NaN and infinities are NULL."""
    return f"""WITH {_ATTEMPT}, places AS (
  SELECT s.id, n.name, 8 * (n.place - 1)::int AS place
  FROM name_set s CROSS JOIN LATERAL json_array_elements_text(s.names::json) WITH ORDINALITY AS n(name, place)
  WHERE n.name IN ({names})
), found AS (
  SELECT b.step, b.{column} AS packed, places.place
  FROM batch b JOIN newest ON b.attempt_id = newest.attempt_id
  JOIN places ON places.id = b.{column[:-1]}_names AND places.name = {name}
), bits AS (
  SELECT step, get_byte(packed, place + 7) AS high,
    ((get_byte(packed, place + 7) & 127) << 4) | (get_byte(packed, place + 6) >> 4) AS exponent,
    {_MANTISSA} AS mantissa
  FROM found
), numbers AS (
  SELECT step, CASE WHEN exponent = 2047 THEN NULL WHEN exponent = 0 THEN 0 ELSE
    (1 - 2 * (high >> 7)) * (1 + mantissa / 4503599627370496.0::float8) * power(2::float8, exponent - 1023) END AS value
  FROM bits
)
{_POINTS}"""  # noqa: S608 - names of signals, and Grafana quotes its variables


def by_step() -> Dashboard:
    about = "The courses of one run over its steps instead of time, from the database: no step is missing."
    source = DatasourceVariable("datasource").label("PostgreSQL of trmon").type("grafana-postgresql-datasource")
    made = frame("trmon-run-by-step", "trmon / Run by step", about).with_variable(source)
    for name, label, query in (
        ("project", "Project", PROJECTS),
        ("run", "Run", RUNS),
        ("scalar", "Trainer's number", SCALARS),
    ):
        variable = QueryVariable(name).label(label).datasource(DATASOURCE).query(query)
        made.with_variable(variable.refresh(VariableRefresh.ON_DASHBOARD_LOAD))
    for i, panel in enumerate(_panels(), 1):
        made.with_panel(panel.id(i))
    return made


def _panels() -> list[trend.Panel]:
    kl = signal_by_step("kl_k3", of_primary_pair=True)
    ess = signal_by_step("ess_token", of_primary_pair=True)
    return [
        _trend("Reward", "Mean reward.", signal_by_step("reward_mean")),
        _trend("KL per token", "kl_k3 of the primary pair, nats per token.", kl, is_log=True),
        _trend("Rejected", "Share that the active policy rejects.", mask_rate_by_step(), unit="percentunit").min(0),
        _trend("Effective share of tokens", "ess_token of the primary pair.", ess, unit="percentunit").min(0).max(1),
        _trend("Response length", "Mean valid tokens of a response.", signal_by_step("response_length_mean")).min(0),
        _trend(
            "$scalar",
            "A number that the trainer logs.",
            _by_step("scalars", "${scalar:sqlstring}", "${scalar:sqlstring}"),
        ),
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


@dataclass(frozen=True)
class _Query(Builder[Dataquery], Dataquery):
    """A table that SQL returns; the SDK has no model of the PostgreSQL plugin's queries."""

    query: str

    def build(self) -> Dataquery:
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
