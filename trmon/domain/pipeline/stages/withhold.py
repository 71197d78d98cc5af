"""Withhold: gives a batch that cannot be processed a row without signals, with the error as its reason."""

from __future__ import annotations

from trmon.domain.batches import scalar_steps
from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.pipeline.stages.draft import DraftRow, assembly_signals, made_at, quarantined_parts
from trmon.domain.pipeline.stages.merge import ClosingBatch


def withhold_row(closing: ClosingBatch, error: Exception | str) -> DraftRow:
    """Return the row of a batch without signals of its sequences and without decisions, but with the error."""
    batch, former, reports = closing.batch, closing.former, closing.batch.reports
    row = BatchRow(
        run_id=closing.context.run.id,
        key=batch.key,
        ordinal=former.ordinal if former else closing.pipeline_state.ordinal + 1,
        closed_at=former.closed_at if former else closing.context.now,
        n_sequences=sum(report.n_sequences for report in reports),
        n_tokens=sum(report.n_tokens for report in reports),
        n_ranks=len({report.key.rank for report in reports}),
        missing_ranks=batch.missing_ranks,
        complete=False,
        revised=former is not None or not closing.pipeline_state.follows(batch.key),
        mode=reports[0].report.mode if reports else closing.context.run.mode,
        primary_pair=None,
        kl_is="sampled",
        policy_hash=reports[0].report.policy if reports else None,
        mismatches=0,
        last_report_id=batch.last_report_id,
        signals=assembly_signals(batch, mismatches=0),
        scalars={**scalar_steps.scalars_of_reports(reports), **closing.scalars},
    )
    reasons = [quarantined(QuarantinePart.BATCH, "the whole batch", error), *quarantined_parts(closing)]
    return DraftRow(
        context=closing.context,
        pipeline_state=closing.pipeline_state,
        row=row.with_quarantined(reasons),
        former=former,
        made_at=made_at(reports[0]) if reports else None,
    )
