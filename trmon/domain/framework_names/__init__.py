"""Metric names of other RL frameworks, and the signals of trmon that are the same number: one file per framework."""

from trmon.domain.framework_names.metric_table import MetricTable
from trmon.domain.framework_names.recognition import FRAMEWORKS, recognise
from trmon.domain.framework_names.translation import IgnoredName, Translation, signals_of_scalars, translate

__all__ = ["FRAMEWORKS", "IgnoredName", "MetricTable", "Translation", "recognise", "signals_of_scalars", "translate"]
