"""The panel types shared by all dashboards: stat, chart, table and timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataTransformerConfig,
    FieldColorModeId,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.source.axes import AUTOMATIC, Axis
from dashboards.source.bands import HEALTHY, Step, thresholds
from dashboards.source.variables import DATASOURCE

PLAIN: list[Step] = [(None, "blue")]
"""The steps of a number that is neither good nor bad."""
GOOD: list[Step] = [(None, HEALTHY)]
LEGEND_VALUES = ["lastNotNull", "min", "max"]
GRID_WIDTH = 24
ROWS_PER_PAGE = 20

Query = tuple[str, str]
"""A PromQL expression and the legend of its series."""
Meanings = Mapping[int, tuple[str, str]]
"""The meaning of a number: its text and color."""


def number(
    title: str,
    about: str,
    expression: str,
    *,
    unit: str,
    steps: list[Step],
    width: int = 4,
    meanings: Meanings | None = None,
) -> stat.Panel:
    """Return one large number, its newest value; "none" without one."""
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .span(width)
        .height(4)
        .unit(unit)
        .thresholds(thresholds(steps))
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
    panel = number(title, about, expression, unit="none", steps=steps, width=width)
    panel.text_mode(BigValueTextMode.NAME).targets([])
    return panel.with_target(_instant(expression).legend_format(legend).ref_id("A"))


def chart(
    title: str,
    about: str,
    *queries: Query,
    unit: str,
    steps: list[Step] = GOOD,
    width: int = 8,
    axis: Axis = AUTOMATIC,
    link: DashboardLink | None = None,
) -> timeseries.Panel:
    """Return lines over time; if there are several steps, they are drawn as dashed limits over colored bands."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .line_width(1)
        .fill_opacity(0)
        .show_points(VisibilityMode.NEVER)
        .thresholds(thresholds(steps))
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


def stacked(title: str, about: str, query: Query, *, unit: str, width: int = 8) -> timeseries.Panel:
    """Return stacked parts of a whole over time."""
    stacking = common.StackingConfig().mode(StackingMode.NORMAL)
    return chart(title, about, query, unit=unit, width=width).fill_opacity(40).stacking(stacking)


def timeline(
    title: str, about: str, query: Query, *, meanings: Meanings, height: int = 6, link: DashboardLink | None = None
) -> statetimeline.Panel:
    """Return one bar per series; its colors show the meaning of the values."""
    expression, legend = query
    return (
        statetimeline.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .span(GRID_WIDTH)
        .height(height)
        .unit("none")
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(thresholds([(None if i == 0 else i, color) for i, (_, color) in sorted(meanings.items())]))
        .mappings([_mapping(meanings)])
        .show_value(VisibilityMode.NEVER)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .legend(_legend())
        .per_page(ROWS_PER_PAGE)
        .data_links([link] if link else [])
        .with_target(_range(expression, legend).ref_id("A"))
    )


def rows(
    title: str,
    about: str,
    queries: Mapping[str, str],
    *,
    unit: str,
    transformations: Sequence[DataTransformerConfig] = (),
    width: int = GRID_WIDTH,
) -> table.Panel:
    """Return a table of newest values with one column per query (named by its ref id) and per label."""
    panel = table.Panel().title(title).description(about).datasource(DATASOURCE).span(width).height(9).unit(unit)
    panel.thresholds(thresholds(GOOD)).filterable(True).show_header(True)
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
