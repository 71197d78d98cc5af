"""Quarantines what fails in the same way on every retry: logs and counts it, and lets the run go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import structlog

from trmon.domain.batches.batch import BatchRow, Quarantined, QuarantinePart
from trmon.domain.batches.scalar_steps import ScalarStep
from trmon.domain.context.pass_context import PassContext
from trmon.domain.pipeline.close_batch import close_batch, close_scalar_step, withhold_batch, withhold_scalar_step
from trmon.domain.pipeline.stages.merge import ClosingBatch
from trmon.domain.pipeline.stages.publish import BatchChanges
from trmon.domain.state.pipeline_state import PipelineState

T = TypeVar("T")

log = structlog.get_logger(__name__)


def close_or_quarantine(closing: ClosingBatch) -> BatchChanges:
    """Return the changes of a batch that closes or is revised; one that raises gets a row without signals.

    The pipeline is pure, so every error but a lack of memory would occur again in every retry.
    """
    if not closing.batch.reports:
        return withhold_batch(closing, "none of its reports can be decoded")
    try:
        return close_batch(closing)
    except MemoryError:
        raise
    except Exception as error:
        log.error("batch_quarantined", run_id=closing.context.run.id, batch=str(closing.batch.key), exc_info=error)
        return withhold_batch(closing, error)


def close_scalars_or_quarantine(
    step: ScalarStep, *, context: PassContext, pipeline_state: PipelineState
) -> BatchChanges:
    """Return the changes of a step that closes with scalars alone; one that raises gets a row that names the error."""
    try:
        return close_scalar_step(step, context=context, pipeline_state=pipeline_state)
    except MemoryError:
        raise
    except Exception as error:
        log.error("batch_quarantined", run_id=context.run.id, batch=str(step.key), exc_info=error)
        return withhold_scalar_step(step, error, context=context, pipeline_state=pipeline_state)


def quarantined_in(row: BatchRow, closing: ClosingBatch) -> list[Quarantined]:
    """Return what a row names as quarantined that was not known before."""
    known = {*closing.other_quarantined, *(closing.former.quarantined if closing.former else ())}
    return [entry for entry in row.quarantined if entry not in known]


def run_quarantined(
    part: QuarantinePart, act: Callable[[], T], *, counts: Counter[QuarantinePart], run_id: int
) -> T | None:
    """Call a function and return its result; an error of arithmetic or of data is counted and logged, and gives None.

    Errors: those of the store, since a retry may succeed.
    """
    try:
        return act()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        counts[part] += 1
        log.error("part_quarantined", run_id=run_id, part=part.value, exc_info=error)
        return None
