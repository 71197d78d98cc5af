"""Merge: concatenates the reports of all ranks into one set of columns, and measures their signals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from trmon.domain.batches.assembly import ClosedBatch, merge_columns
from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.signals.run_features import columns_signals, staleness_lag
from trmon_client.core import bounds
from trmon_client.core.bounds import AlphaSplit, engine_lag
from trmon_client.core.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingBatch:
    """The input of the pipeline: a closed batch, or with `former` the revision of a row.

    `scalars` arrived in separate messages; `other_quarantined` was set aside since the batch before.
    """

    context: PassContext
    pipeline_state: PipelineState
    batch: ClosedBatch
    scalars: dict[str, float] = field(default_factory=dict)
    former: BatchRow | None = None
    other_quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """One report of a batch, its columns, and its rows in the merged columns."""

    stored: StoredReport
    columns: Columns
    rows: slice


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBatch:
    """The merged columns of a batch, and the part of each report in them."""

    columns: Columns
    parts: tuple[ReportPart, ...]


def merge_reports(closing: ClosingBatch) -> MergedBatch:
    """Return the columns of the batch in the order (rank, chunk, row)."""
    parts, start = [], 0
    for stored in closing.batch.reports:
        columns = stored.columns()
        rows = slice(start, start := start + columns.n_sequences)
        parts.append(ReportPart(stored=stored, columns=columns, rows=rows))
    return MergedBatch(columns=merge_columns([part.columns for part in parts]), parts=tuple(parts))


@np.errstate(all="ignore")
def measure_batch(columns: Columns) -> dict[str, float]:
    """Return the signals of a batch by name, with the drift features and the error bounds."""
    found = columns_signals(columns)
    found["engine_lag"] = engine_lag(columns)
    found["alpha_mismatch_share"] = AlphaSplit.of_signals(found).mismatch_share
    found["staleness_lag"] = staleness_lag(columns, version_lag=found.get("version_lag_max", math.nan))
    try:
        limits = bounds.batch_bounds(columns)
    except ValueError:  # A client sent a KL below zero.
        limits = bounds.UNKNOWN
    found |= {"bound_adaptive": limits.adaptive, "bound_trpo": limits.trpo}
    found["bound_vacuous"] = math.nan if limits.vacuous is None else float(limits.vacuous)
    return found
