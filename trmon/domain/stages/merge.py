"""Merge: the reports of a batch's ranks and chunks become one set of columns; nothing is averaged."""

from __future__ import annotations

from dataclasses import dataclass, field

from trmon.domain.batches import trainer_scalars
from trmon.domain.batches.assembly import ClosedBatch
from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import Quarantined
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import StoredReport
from trmon.domain.state.pipeline_state import PipelineState
from trmon_client.core.columns.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingBatch:
    """What enters the pipeline: a batch whose time has come, or with `former` one that is revised.

    `scalars` are those that came in messages of their own. `beside` was set aside since the batch before, and is of no
    batch, or of one that was told already.
    """

    context: PassContext
    pipeline_state: PipelineState
    batch: ClosedBatch
    scalars: dict[str, float] = field(default_factory=dict)
    former: BatchRow | None = None
    beside: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """One report of a batch, its own columns, and the rows of the merged ones that it gave."""

    stored: StoredReport
    columns: Columns
    rows: slice


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBatch:
    """The batch as one: its columns, and the part each report has in them."""

    closing: ClosingBatch
    columns: Columns
    parts: tuple[ReportPart, ...]
    scalars: dict[str, float]


def merge_reports(closing: ClosingBatch) -> MergedBatch:
    """Return the batch's columns in the order (rank, chunk, row), with its scalars.

    Reports that share no pair with the first cannot be merged with it and are left out.
    """
    found = [(report, report.columns()) for report in closing.batch.reports]
    common = set(found[0][1].pairs)
    parts, start = [], 0
    for stored, columns in found:
        if common & set(columns.pairs):
            common &= set(columns.pairs)
            rows = slice(start, start := start + columns.n_sequences)
            parts.append(ReportPart(stored=stored, columns=columns, rows=rows))
    return MergedBatch(
        closing=closing,
        columns=Columns.merge(*(part.columns for part in parts)),
        parts=tuple(parts),
        scalars={**trainer_scalars.scalars_of_reports(closing.batch.reports), **closing.scalars},
    )
