"""Merge: concatenates the reports of all ranks and chunks into one set of columns, without averaging."""

from __future__ import annotations

from dataclasses import dataclass, field

from trmon.domain.batches import scalar_steps
from trmon.domain.batches.assembly import ClosedBatch, merge_columns
from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import StoredReport
from trmon.domain.state.pipeline_state import PipelineState
from trmon_client.core.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingBatch:
    """The input of the pipeline: a closed batch, or with `former` the revision of a row.

    `scalars` arrived in separate messages. `beside` was set aside since the batch before, and is of no
    batch, or of one that was told already.
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

    closing: ClosingBatch
    columns: Columns
    parts: tuple[ReportPart, ...]
    scalars: dict[str, float]


def merge_reports(closing: ClosingBatch) -> MergedBatch:
    """Return the columns of the batch in the order (rank, chunk, row), and its scalars."""
    parts, start = [], 0
    for stored in closing.batch.reports:
        columns = stored.columns()
        rows = slice(start, start := start + columns.n_sequences)
        parts.append(ReportPart(stored=stored, columns=columns, rows=rows))
    return MergedBatch(
        closing=closing,
        columns=merge_columns([part.columns for part in parts]),
        parts=tuple(parts),
        scalars={**scalar_steps.scalars_of_reports(closing.batch.reports), **closing.scalars},
    )
