"""The pipeline: every stage that a batch goes through when it closes, in order."""

from __future__ import annotations

from trmon.domain.batches.batch import BatchRow
from trmon.domain.context.pass_context import PassContext
from trmon.domain.stages.detect import detect_findings
from trmon.domain.stages.draft import DraftRow, draft_row
from trmon.domain.stages.fold import FoldedRow, amend_row, fold_row
from trmon.domain.stages.measure import measure_batch
from trmon.domain.stages.merge import ClosingBatch, merge_reports
from trmon.domain.stages.publish import BatchChanges, batch_event, publish_batch
from trmon.domain.stages.replay import replay_decisions
from trmon.domain.stages.transition import JudgedBatch, move_alerts
from trmon.domain.stages.withhold import withhold_row
from trmon.domain.state.pipeline_state import PipelineState


def close_batch(closing: ClosingBatch) -> BatchChanges:
    """Return everything that a batch changes when it closes, or when it is revised if it has a former row."""
    merged = merge_reports(closing)  # the reports of all ranks and chunks become one set of columns
    measured = measure_batch(merged)  # signals
    replayed = replay_decisions(measured)  # the active policy and its shadows decide; compared with the trainer
    drafted = draft_row(replayed)  # the row, as far as the batch alone tells it
    folded = _fold(drafted, is_revision=closing.former is not None)
    return publish_batch(_judge(folded))  # rows, events and deliveries


def withheld(closing: ClosingBatch, error: Exception | str) -> BatchChanges:
    """Return what a batch that cannot be judged changes: a row that names the error, and the alert over it.

    A row that cannot be folded either is written as it is, and the pipeline state skips it.
    """
    drafted = withhold_row(closing, error)
    try:
        return publish_batch(_judge(_fold(drafted, is_revision=closing.former is not None)))
    except Exception:  # noqa: BLE001 - the row says already why the batch was not judged
        pipeline_state = closing.pipeline_state.passing(drafted.row.key, ordinal=drafted.row.ordinal)
        events = (batch_event(drafted.row, at=closing.context.now),)
        return BatchChanges(pipeline_state=pipeline_state, row=drafted.row, events=events)


def replay_row(row: BatchRow, *, context: PassContext, pipeline_state: PipelineState) -> PipelineState:
    """Return the pipeline state after a stored row; it skips a row that cannot be folded.

    The alerts that the row raised are discarded: they were written together with the row.
    """
    try:
        return _judge(fold_row(DraftRow(context=context, pipeline_state=pipeline_state, row=row))).pipeline_state
    except Exception:  # noqa: BLE001 - the row was judged when it was written
        return pipeline_state.passing(row.key, ordinal=row.ordinal)


def _fold(drafted: DraftRow, *, is_revision: bool) -> FoldedRow:
    """Fold a new row into the pipeline state, once and in order; a revision changes the row alone."""
    return amend_row(drafted) if is_revision else fold_row(drafted)


def _judge(folded: FoldedRow) -> JudgedBatch:
    detected = detect_findings(folded)  # what the rules say of the row
    return move_alerts(detected)  # pending, firing, resolved
