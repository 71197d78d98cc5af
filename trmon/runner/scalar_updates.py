"""Adds trainer scalars that came after their step's batch had closed to its row."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.framework_names.translation import signals_of_scalars
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import StoredNotice
from trmon.domain.pipeline.stages.detect import reconsider
from trmon.domain.pipeline.stages.publish import BatchChanges, batch_event
from trmon.domain.ports import RunLog
from trmon.runner.loaded_run import LoadedRun
from trmon.runner.log_reader import StoredMessage
from trmon.runner.pass_changes import PassChanges
from trmon_client.core import wire


def apply_newest_scalars(log: RunLog, run: LoadedRun, messages: Iterable[StoredMessage], changes: PassChanges) -> None:
    """Revise the newest step's gauge row before batches of later steps close, which make its history final.

    Scalars and the next step often come in one pass: what they change must not depend on when the passes were.
    """
    for key in run.pipeline_state.gauge_keys[-1:]:
        if (key.attempt_id, key.step) in _steps_of(messages):
            _apply_to_step(log, run, key.attempt_id, key.step, changes)


def apply_scalars(log: RunLog, run: LoadedRun, messages: Iterable[StoredMessage], changes: PassChanges) -> None:
    """Revise the gauge rows of closed steps that new scalars belong to; those of later steps stay pending."""
    for attempt_id, step in sorted(_steps_of(messages)):
        _apply_to_step(log, run, attempt_id, step, changes)
    if run.pipeline_state.folded is not None:
        run.pending.forget_scalars(run.pipeline_state.folded)


def _steps_of(messages: Iterable[StoredMessage]) -> set[tuple[int, int]]:
    notices = [message for message in messages if isinstance(message, StoredNotice)]
    return {(notice.attempt_id, notice.message.step) for notice in notices if isinstance(notice.message, wire.Scalars)}


def _apply_to_step(log: RunLog, run: LoadedRun, attempt_id: int, step: int, changes: PassChanges) -> None:
    key = run.pipeline_state.gauge_key(attempt_id, step) or BatchKey(attempt_id, step, None)
    if run.pipeline_state.follows(key):
        return
    row = changes.rows.get(key) or log.batch(key)
    scalars = run.pending.scalars.of(attempt_id, step)
    if row is None:
        changes.tally.unplaced_scalars += 1
    elif scalars.items() - row.scalars.items():
        row = _with_scalars(row, {**row.scalars, **scalars})
        row, state = reconsider(row, context=run.pass_context(changes), pipeline_state=run.pipeline_state)
        event = batch_event(row, at=changes.now)
        run.apply(BatchChanges(pipeline_state=state, row=row, events=(event,)), changes)
        if run.gauge_row and run.gauge_row.key == key:
            run.gauge_row = row


def _with_scalars(row: BatchRow, scalars: dict[str, float]) -> BatchRow:
    signals = {**row.signals, **signals_of_scalars(scalars)} if row.has_scalars_only else row.signals
    return structs.replace(row, scalars=scalars, signals=signals)
