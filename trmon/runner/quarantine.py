"""Quarantine: what of a run fails in the same way each time is set aside and logged, and the run goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import structlog

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import Quarantined, QuarantinePart
from trmon.domain.pipeline.close_batch import close_batch, withheld
from trmon.domain.stages.merge import ClosingBatch
from trmon.domain.stages.publish import BatchChanges

T = TypeVar("T")

log = structlog.get_logger(__name__)


def close_or_quarantine(closing: ClosingBatch) -> BatchChanges:
    """Return what a batch changes when it closes or is revised; one that cannot be judged is withheld, with why.

    The stages are pure: what fails in them fails again in every retry. Only a lack of memory may pass.
    """
    if not closing.batch.reports:
        return withheld(closing, "none of its reports can be decoded")
    try:
        return close_batch(closing)
    except MemoryError:
        raise
    except Exception as error:
        log.error("batch_quarantined", run_id=closing.context.run.id, batch=str(closing.batch.key), exc_info=error)
        return withheld(closing, error)


def quarantined_in(row: BatchRow, closing: ClosingBatch) -> list[Quarantined]:
    """Return what a row names now that was not set aside before."""
    known = {*closing.beside, *(closing.former.quarantined if closing.former else ())}
    return [entry for entry in row.quarantined if entry not in known]


def run_quarantined(
    part: QuarantinePart, act: Callable[[], T], *, counts: Counter[QuarantinePart], run_id: int
) -> T | None:
    """Return what a call returns; None after an error of arithmetic or of data, which is counted and logged.

    Errors: those of the store, which a retry may mend.
    """
    try:
        return act()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        counts[part] += 1
        log.error("part_quarantined", run_id=run_id, part=part.value, exc_info=error)
        return None
