"""The scales of charts: an automatic one magnifies noise near natural ends, and shows only the peaks of decades."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, timeseries
from grafana_foundation_sdk.models.common import ScaleDistribution


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


def signed_decades(linear_below: float) -> Axis:
    """Return the scale of a value that spans decades and may be negative."""
    return Axis(linear_below=linear_below)
