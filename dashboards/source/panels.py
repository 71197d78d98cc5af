"""The panels of all dashboards: types, colors from healthy ranges and limits of findings, scales and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataTransformerConfig,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.source.promql import DATASOURCE
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.findings.catalogue import Clause, builtin_catalogue
from trmon.domain.findings.catalogue import Comparison as CatalogueComparison
from trmon.domain.findings.measures import VIEWS
from trmon.domain.rules.condition import ThresholdSide, comparisons_of
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.severity import Severity

_Panel = TypeVar("_Panel", stat.Panel, statetimeline.Panel, table.Panel, timeseries.Panel)
Step = tuple[float | None, str]
"""A value and the color from there on; None starts at the minimum."""
PLAIN: list[Step] = [(None, "blue")]
"""The steps of a number that is neither good nor bad."""
RUN_HEALTH_UID = "trmon-run-health"
LEGEND_VALUES = ["lastNotNull", "min", "max"]
GRID_WIDTH = 24
ROWS_PER_PAGE = 20
Query = tuple[str, str]
"""A PromQL expression and the legend of its series."""
Meanings = Mapping[int, tuple[str, str]]
"""The meaning of a number: its text and color."""
STEP_ON_PAGE = (
    "${page}/runs/${__data.fields.project:percentencode}/${__data.fields.run:percentencode}?step=${__value.raw}"
)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The ends of a scale, a value that it reaches down to at least, and where a symmetric logarithm is linear."""

    least: float | None = None
    most: float | None = None
    down_to: float | None = None
    is_log: bool = False
    linear_below: float | None = None

    def apply(self, panel: timeseries.Panel) -> None:
        """Set the scale of a chart."""
        if self.least is not None:
            panel.min(self.least)
        if self.most is not None:
            panel.max(self.most)
        if self.down_to is not None:
            panel.axis_soft_min(self.down_to)
        if self.is_log:
            panel.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
        if self.linear_below is not None:
            scale = common.ScaleDistributionConfig().type(ScaleDistribution.SYMLOG).log(10)
            panel.scale_distribution(scale.linear_threshold(self.linear_below))


AUTOMATIC = Axis()
DECADES = Axis(is_log=True)
"""Of a positive value that spans decades."""
SHARE = Axis(least=0, most=1)
FROM_ZERO = Axis(least=0)
NEAR_ONE = Axis(most=1, down_to=0.9)
"""Of a correlation: a fall below 0.9 widens the scale, noise above it does not fill it."""


HEALTHY, WATCH, ACT = "green", "orange", "red"
COLORS = {Severity.PAGE: ACT, Severity.WARN: WATCH, Severity.INFO: WATCH}


def band(signal: str) -> list[Step]:
    """Return the steps of a signal, ascending: its healthy range, and the limits of what judges its value alone."""
    # The clause of the risk compares it with what its model warns at.
    edges = {edge for clause in judges(signal) if signal != RISK for edge in _of_clause(clause)}
    healthy, model = builtin_catalogue().ranges.get(signal), shipped_model().file
    if healthy is not None:
        edges |= {*_ends(healthy.least, healthy.most, WATCH)}
    for rule in builtin_rules().others:
        if rule.name == signal:
            edges |= {(limit.bound, limit.threshold, COLORS[rule.severity]) for limit in comparisons_of(rule.when)}
    if signal == RISK:
        edges |= {(ThresholdSide.ABOVE, model.warn_at, WATCH), (ThresholdSide.ABOVE, model.page_at, ACT)}
    below = sorted((value, color) for bound, value, color in edges if bound is ThresholdSide.BELOW)
    above = sorted((value, color) for bound, value, color in edges if bound is ThresholdSide.ABOVE)
    starts = [None, *(value for value, _ in below)]
    colors = [*(color for _, color in below), HEALTHY]
    return [*zip(starts, colors, strict=True), *above]


def judges(signal: str) -> list[Clause]:
    """Return the clauses that compare the value of a signal alone with an absolute limit, in the order of causes."""
    return [
        clause
        for clause in builtin_catalogue().clauses
        if not clause.is_change and not clause.any and all(_is_of(part, signal) for part in clause.when)
    ]


def _is_of(part: CatalogueComparison, signal: str) -> bool:
    name = part.signals[0]
    return bool(part.side) and VIEWS[name][0] == signal if name in VIEWS else name == signal


def _framed(panel: _Panel, title: str, about: str, *, width: int, height: int, unit: str, steps: list[Step]) -> _Panel:
    """Return a panel with its title, its description, its size and its colors, which queries Prometheus."""
    panel.title(title).description(about).datasource(DATASOURCE).span(width).height(height).unit(unit)
    colors = [Threshold(value=value, color=color) for value, color in steps]
    return panel.thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colors))


Edge = tuple[ThresholdSide, float, str]
"""A limit: its side, its value and the color beyond it."""
PLAIN_TRANSFORMS = ("", "mean", "mean_of_others")
DISTANCES = {"pearson_gap": 1.0, "ppl_gap": 1.0, "kl_k1_size": 0.0}
"""The points that views are distances from."""


def _of_clause(clause: Clause) -> Iterator[Edge]:
    """Yield the limits of a clause on its signal's value, or on its distance from a point."""
    decisive, color = clause.decisive, COLORS[clause.severity]
    name = decisive.signals[0]
    point = DISTANCES.get(name)
    if point is not None and not decisive.transform:
        most = math.inf if name == "pearson_gap" else point + decisive.limit
        yield from _ends(point - decisive.limit, most, color)
    elif point is None and decisive.transform in PLAIN_TRANSFORMS:
        side = ThresholdSide.ABOVE if decisive.is_upper else ThresholdSide.BELOW
        yield side, decisive.limit, color


def _ends(least: float, most: float, color: str) -> Iterator[Edge]:
    if math.isfinite(least):
        yield ThresholdSide.BELOW, least, color
    if math.isfinite(most):
        yield ThresholdSide.ABOVE, most, color


GOOD: list[Step] = [(None, HEALTHY)]


def number(
    title: str,
    about: str,
    expression: str,
    *,
    unit: str = "none",
    steps: list[Step] = PLAIN,
    width: int = 4,
    meanings: Meanings | None = None,
) -> stat.Panel:
    """Return one large number, its newest value; "none" without one."""
    panel = (
        _framed(stat.Panel(), title, about, width=width, height=4, unit=unit, steps=steps)
        .color_mode(BigValueColorMode.VALUE if steps is PLAIN else BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .no_value("none")
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .with_target(_instant(expression).ref_id("A"))
    )
    return panel.mappings([_mapping(meanings)]) if meanings else panel


def named(title: str, about: str, query: Query, *, width: int, steps: list[Step]) -> stat.Panel:
    """Return the name of the one series that a query finds, colored by its value; "none" without a series."""
    expression, legend = query
    panel = number(title, about, expression, steps=steps, width=width)
    panel.text_mode(BigValueTextMode.NAME).targets([])
    return panel.with_target(_instant(expression).legend_format(legend).ref_id("A"))


def chart(
    title: str,
    about: str,
    *queries: Query,
    unit: str = "none",
    steps: list[Step] = GOOD,
    width: int = 8,
    axis: Axis = AUTOMATIC,
    link: DashboardLink | None = None,
) -> timeseries.Panel:
    """Return lines over time; if there are several steps, they are drawn as dashed limits over colored bands."""
    panel = (
        _framed(timeseries.Panel(), title, about, width=width, height=8, unit=unit, steps=steps)
        .line_width(1)
        .fill_opacity(0)
        .show_points(VisibilityMode.NEVER)
        .legend(_legend().calcs(LEGEND_VALUES))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .data_links([link] if link else [])
    )
    if len(steps) > 1:
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED_AND_AREA))
    axis.apply(panel)
    for ref_id, (expression, legend) in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_range(expression, legend).ref_id(ref_id))
    return panel


def stacked(title: str, about: str, query: Query, *, unit: str = "none") -> timeseries.Panel:
    """Return stacked parts of a whole over time."""
    stacking = common.StackingConfig().mode(StackingMode.NORMAL)
    return chart(title, about, query, unit=unit).fill_opacity(40).stacking(stacking)


def timeline(
    title: str, about: str, query: Query, *, meanings: Meanings, height: int = 6, link: DashboardLink
) -> statetimeline.Panel:
    """Return one bar per series; its colors show the meaning of the values."""
    expression, legend = query
    steps: list[Step] = [(None if i == 0 else i, color) for i, (_, color) in sorted(meanings.items())]
    return (
        _framed(statetimeline.Panel(), title, about, width=GRID_WIDTH, height=height, unit="none", steps=steps)
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .mappings([_mapping(meanings)])
        .show_value(VisibilityMode.NEVER)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .legend(_legend())
        .per_page(ROWS_PER_PAGE)
        .data_links([link])
        .with_target(_range(expression, legend).ref_id("A"))
    )


def rows(
    title: str,
    about: str,
    queries: Mapping[str, str],
    transformations: Sequence[DataTransformerConfig],
) -> table.Panel:
    """Return a table of newest values with one column per query (named by its ref id) and per label."""
    panel = _framed(table.Panel(), title, about, width=GRID_WIDTH, height=9, unit="short", steps=GOOD)
    panel.filterable(True).show_header(True)
    for ref_id, expression in queries.items():
        panel.with_target(_instant(expression).format(PromQueryFormat.TABLE).ref_id(ref_id))
    return panel.transformations(list(transformations))


def link(title: str, url: str) -> DashboardLink:
    """Return a link for clicks on a series or a cell."""
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(True)


def _instant(expression: str) -> Dataquery:
    return Dataquery().datasource(DATASOURCE).expr(expression).instant()


def _range(expression: str, legend: str) -> Dataquery:
    return Dataquery().datasource(DATASOURCE).expr(expression).legend_format(legend).range()


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
    )


def _mapping(meanings: Meanings) -> ValueMap:
    return ValueMap(
        options={
            str(value): ValueMappingResult(text=text, color=color, index=i)
            for i, (value, (text, color)) in enumerate(meanings.items())
        }
    )


def run_health(labels: str) -> str:
    """Return the URL of a run's dashboard; `labels` is the Grafana variable with the run's labels."""
    return (
        f"/d/{RUN_HEALTH_UID}?var-datasource=${{datasource}}&${{__url_time_range}}"
        f"&var-project=${{{labels}.project:percentencode}}&var-run=${{{labels}.run:percentencode}}"
    )


TO_RUN = link("Run health", run_health("__field.labels"))
