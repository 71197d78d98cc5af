"""The pipeline: all stages of a closing batch, in order."""

from __future__ import annotations

from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.batches.scalar_steps import ScalarStep
from trmon.domain.pipeline.draft import ClosingRow, draft_row, draft_scalar_row, withhold_row
from trmon.domain.pipeline.fold import amend_row, detect_findings, fold_row
from trmon.domain.pipeline.merge import ClosingBatch, measure_batch, merge_reports
from trmon.domain.pipeline.publish import BatchChanges, batch_event, publish_batch
from trmon.domain.pipeline.replay import replay_decisions
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_transitions


def close_batch(closing: ClosingBatch) -> BatchChanges:
    """Return all changes of a batch that closes, or that is revised if it has a former row."""
    merged = merge_reports(closing)  # the reports of all ranks and chunks become one set of columns
    signals = measure_batch(merged.columns)
    replayed = replay_decisions(closing, merged)  # the active policy and its shadows decide; compared with the trainer
    drafted = draft_row(closing, merged, signals, replayed)  # the row, without the history of the run
    folded = _fold(drafted)  # historical signals, and the pipeline state after the row
    return publish_batch(evaluate_row(folded))  # findings, alerts; rows, events and deliveries


def close_scalar_step(step: ScalarStep, *, context: PassContext, pipeline_state: PipelineState) -> BatchChanges:
    """Return all changes of a step that closes with scalars alone."""
    drafted = draft_scalar_row(step, context=context, pipeline_state=pipeline_state)
    return publish_batch(evaluate_row(fold_row(drafted)))


def withhold_scalar_step(
    step: ScalarStep, error: Exception, *, context: PassContext, pipeline_state: PipelineState
) -> BatchChanges:
    """Return the changes of a step of scalars that cannot be processed: a row with the error, which is not folded."""
    drafted = draft_scalar_row(step, context=context, pipeline_state=pipeline_state)
    row = drafted.row.with_quarantined([quarantined(QuarantinePart.BATCH, "the whole batch", error)])
    skipped = pipeline_state.skip_batch(row.key, ordinal=row.ordinal)
    return BatchChanges(pipeline_state=skipped, row=row, events=(batch_event(row, at=context.now),))


def withhold_batch(closing: ClosingBatch, error: Exception | str) -> BatchChanges:
    """Return the changes of a batch that cannot be processed: a row with the error, and the alert about it.

    If folding the row fails too, the row is written as it is, and the pipeline state skips it.
    """
    drafted = withhold_row(closing, error)
    try:
        return publish_batch(evaluate_row(_fold(drafted)))
    except Exception:  # noqa: BLE001 - the row already records why the batch was not processed
        pipeline_state = closing.pipeline_state.skip_batch(drafted.row.key, ordinal=drafted.row.ordinal)
        events = (batch_event(drafted.row, at=closing.context.now),)
        return BatchChanges(pipeline_state=pipeline_state, row=drafted.row, events=events)


def replay_row(row: BatchRow, *, context: PassContext, pipeline_state: PipelineState) -> PipelineState:
    """Return the pipeline state after a stored row, whose alerts were written with it; a row that fails is skipped."""
    try:
        return evaluate_row(
            fold_row(ClosingRow(context=context, pipeline_state=pipeline_state, row=row, is_stored=True))
        ).pipeline_state
    except Exception:  # noqa: BLE001 - the row was processed when it was written
        return pipeline_state.skip_batch(row.key, ordinal=row.ordinal)


def _fold(drafted: ClosingRow) -> ClosingRow:
    """Fold a new row into the pipeline state, once and in order; a revision changes the row alone."""
    return fold_row(drafted) if drafted.former is None else amend_row(drafted)


def evaluate_row(folded: ClosingRow) -> ClosingRow:
    """Return a folded row with its findings and the transitions of alerts that follow."""
    detected = detect_findings(folded)  # findings of the rules over the row
    return apply_transitions(detected)  # pending, firing, resolved
