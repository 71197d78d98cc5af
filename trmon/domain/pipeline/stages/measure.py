"""Measure: computes the signals of a batch from its columns: formulas, section 5, drift features and bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon.domain.pipeline.stages.merge import MergedBatch
from trmon.domain.signals.drift_features import columns_signals, engine_lag, staleness_lag
from trmon_client.core import bounds
from trmon_client.core.bounds import AlphaSplit
from trmon_client.core.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatch:
    """The merged batch and its signals by name."""

    merged: MergedBatch
    signals: dict[str, float]


@np.errstate(all="ignore")
def measure_batch(merged: MergedBatch) -> MeasuredBatch:
    """Return the signals of the batch, with the drift features and the error bounds."""
    columns, found = merged.columns, columns_signals(merged.columns)
    found["alpha_mismatch_share"] = AlphaSplit.of_signals(found).mismatch_share
    found["engine_lag"] = engine_lag(columns)
    found["staleness_lag"] = staleness_lag(columns, version_lag=found.get("version_lag_max", math.nan))
    limits = _bounds(columns)
    found |= {"bound_adaptive": limits.adaptive, "bound_trpo": limits.trpo}
    found["bound_vacuous"] = math.nan if limits.vacuous is None else float(limits.vacuous)
    return MeasuredBatch(merged=merged, signals=found)


def _bounds(columns: Columns) -> bounds.ErrorBounds:
    """Return the error bounds, unknown if a client sent a KL below zero."""
    try:
        return bounds.batch_bounds(columns)
    except ValueError:
        return bounds.UNKNOWN
