"""Scalar row: builds the row of a step of which only scalars came, without sequences and without decisions."""

from __future__ import annotations

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.scalar_steps import ScalarStep
from trmon.domain.context.pass_context import PassContext
from trmon.domain.framework_names.translation import signals_of_scalars
from trmon.domain.pipeline.stages.draft import DraftRow
from trmon.domain.state.pipeline_state import PipelineState


def draft_scalar_row(step: ScalarStep, *, context: PassContext, pipeline_state: PipelineState) -> DraftRow:
    """Return the row of a step of which only scalars came; those that trmon has a name for are signals."""
    row = BatchRow(
        run_id=context.run.id,
        key=step.key,
        ordinal=pipeline_state.ordinal + 1,
        closed_at=context.now,
        n_sequences=0,
        n_tokens=0,
        n_ranks=len(step.ranks),
        missing_ranks=(),
        complete=True,
        revised=False,
        mode=context.run.mode,
        primary_pair=None,
        kl_is="sampled",
        policy_hash=None,
        mismatches=0,
        last_report_id=0,
        signals=signals_of_scalars(step.values),
        scalars=step.values,
    )
    return DraftRow(context=context, pipeline_state=pipeline_state, row=row, made_at=step.made_at)
