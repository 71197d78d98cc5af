"""Closes a run's batches that are complete or out of time, and revises closed ones; what fails is quarantined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog
from msgspec import structs

from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.batches.scalar_steps import ScalarSteps
from trmon.domain.framework_names.translation import signals_of_scalars
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice
from trmon.domain.pipeline.close_batch import close_batch, close_scalar_step, withhold_batch, withhold_scalar_step
from trmon.domain.pipeline.fold import reconsider
from trmon.domain.pipeline.merge import ClosingBatch
from trmon.domain.pipeline.publish import BatchChanges, batch_event
from trmon.worker.adaptation import BoundAdaptation
from trmon.worker.messages import StoredMessage
from trmon.worker.pass_changes import PassChanges
from trmon.worker.recovery import LoadedRun
from trmon_client.core import wire

log = structlog.get_logger(__name__)


def close_or_quarantine(
    close: Callable[[], BatchChanges], withhold: Callable[[Exception], BatchChanges], *, run_id: int, key: BatchKey
) -> BatchChanges:
    """Return the changes of a batch or a step that closes; one that raises gets a row that names the error.

    The pipeline is pure, so every error but a lack of memory would occur again in every retry.
    """
    try:
        return close()
    except MemoryError:
        raise
    except Exception as error:
        log.error("batch_quarantined", run_id=run_id, batch=str(key), exc_info=error)
        return withhold(error)


def quarantined_in(row: BatchRow, closing: ClosingBatch) -> list[Quarantined]:
    """Return what a row names as quarantined that was not known before."""
    known = {*closing.other_quarantined, *(closing.former.quarantined if closing.former else ())}
    return [entry for entry in row.quarantined if entry not in known]


class BatchCloser:
    """Sends batches through the pipeline, and passes gauge rows on to the adaptation of bounds."""

    def __init__(
        self,
        run: LoadedRun,
        *,
        adaptation: BoundAdaptation,
        grace_seconds: float,
        loaded_at: float,
    ) -> None:
        """Args: grace_seconds: how long a batch waits for missing reports; loaded_at: grace counts from then on."""
        self._run = run
        self._adaptation = adaptation
        self._grace_seconds = grace_seconds
        self._loaded_at = loaded_at

    @property
    def due_at(self) -> float:
        """When the grace period of the first open batch, or step of scalars, ends; infinity: none is open."""
        ends = self._run.pending.assembly.grace_ends(grace_seconds=self._grace_seconds, watching_since=self._loaded_at)
        of_scalars = self._scalar_steps(caught_up=True).due_at()
        return of_scalars if ends is None else min(ends, of_scalars)

    def close_due(self, changes: PassChanges, *, caught_up: bool) -> None:
        """Close the batches that are due; while messages are unread, only complete ones."""
        run = self._run
        due = run.pending.assembly.close_due(
            now=changes.now,
            grace_seconds=self._grace_seconds if caught_up else math.inf,
            watching_since=self._loaded_at,
        )
        for batch in due:
            closing = ClosingBatch(
                context=run.context.pass_context(changes.now),
                pipeline_state=run.pipeline_state,
                batch=batch.decoded(),
                scalars=run.pending.scalars.of(batch.key.attempt_id, batch.key.step),
                other_quarantined=self._take_unreported(batch.key),
            )
            self._close(closing, changes)
            changes.tally.close_lags_seconds.append(changes.now - batch.newest_at)

    def close_scalar_steps(self, changes: PassChanges, *, caught_up: bool) -> None:
        """Close the steps of which only scalars came, once later ones follow or the run has ended."""
        run = self._run
        for step in self._scalar_steps(caught_up=caught_up).due(changes.now):
            run.context.beat()
            context, state = run.context.pass_context(changes.now), run.pipeline_state
            published = close_or_quarantine(
                partial(close_scalar_step, step, context=context, pipeline_state=state),
                partial(withhold_scalar_step, step, context=context, pipeline_state=state),
                run_id=run.id,
                key=step.key,
            )
            run.apply(published, changes)
            if published.row is not None:
                changes.tally.quarantined.update(entry.part for entry in published.row.quarantined)
            if published.row is not None and published.is_gauge:
                run.gauge_row = published.row
            changes.tally.close_lags_seconds.append(changes.now - step.newest_at)

    def _scalar_steps(self, *, caught_up: bool) -> ScalarSteps:
        run = self._run
        return ScalarSteps(
            run.pending.scalars,
            reporting=run.reporting,
            is_rank_ended=run.pending.assembly.is_rank_ended,
            folded=run.pipeline_state.folded,
            has_ended=caught_up and run.life.state.ended,
            grace_seconds=self._grace_seconds if caught_up else math.inf,
            watching_since=self._loaded_at,
        )

    def revise(self, late: Mapping[BatchKey, BatchRow], changes: PassChanges) -> None:
        """Compute closed rows again from all their reports.

        A row is left as it is if retention has deleted some of its reports: the late ones are not the whole batch.
        Rules see the scalars of late reports, as they see those of scalars messages.
        """
        run = self._run
        for key, row in late.items():
            batch = run.pending.assembly.reopen(run.context.history.reports_of(key)).decoded()
            if sum(report.n_sequences for report in batch.reports if report.id <= row.last_report_id) < row.n_sequences:
                continue
            context = run.context.pass_context(changes.now)
            closing = ClosingBatch(context=context, pipeline_state=run.pipeline_state, batch=batch, former=row)
            self._close(closing, changes)
            # A revised row is not folded again: the next batch names what is damaged in it.
            found = quarantined_in(changes.rows[key], closing)
            run.unreported += [structs.replace(entry, place=f"step {key.step}, {entry.place}") for entry in found]
            read = structs.replace(row, scalars=changes.rows[key].scalars)
            _, run.pipeline_state = reconsider(read, context=context, pipeline_state=run.pipeline_state)

    def confirm(self, changes: PassChanges) -> None:
        """Record whether batches are complete whose ranks stated their counts only after the batch had closed."""
        run = self._run
        for key, is_complete in run.pending.assembly.take_confirmed().items():
            row = changes.rows.get(key) or run.context.history.batch(key)
            if row is None or not row.unconfirmed:
                continue
            row = structs.replace(row, unconfirmed=False, complete=row.complete and is_complete)
            changes.rows[key] = row
            if run.gauge_row and run.gauge_row.key == key:
                run.gauge_row = row

    def _take_unreported(self, key: BatchKey) -> tuple[Quarantined, ...]:
        """Return what the batch has to name besides its own reports: nothing unless it is folded."""
        if not self._run.pipeline_state.follows(key):
            return ()
        unreported, self._run.unreported = tuple(self._run.unreported), []
        return unreported

    def _close(self, closing: ClosingBatch, changes: PassChanges) -> None:
        run = self._run
        run.context.beat()
        if closing.batch.reports:
            close, withhold = partial(close_batch, closing), partial(withhold_batch, closing)
            published = close_or_quarantine(close, withhold, run_id=run.id, key=closing.batch.key)
        else:
            published = withhold_batch(closing, "none of its reports can be decoded")
        run.apply(published, changes)
        row = published.row
        if row is not None:
            changes.tally.quarantined.update(entry.part for entry in quarantined_in(row, closing))
        if row is not None and closing.former is None:
            changes.tally.mismatches += row.mismatches
        if row is not None and (published.is_gauge or (run.gauge_row and run.gauge_row.key == row.key)):
            run.gauge_row = row
        if published.is_gauge:
            self._adaptation.add_batch(closing, changes)


def apply_newest_scalars(run: LoadedRun, messages: Iterable[StoredMessage], changes: PassChanges) -> None:
    """Revise the newest step's gauge row before batches of later steps close, which make its history final.

    Scalars and the next step often come in one pass: what they change must not depend on when the passes were.
    """
    for key in run.pipeline_state.gauge_keys[-1:]:
        if (key.attempt_id, key.step) in _steps_of(messages):
            _apply_to_step(run, key.attempt_id, key.step, changes)


def apply_scalars(run: LoadedRun, messages: Iterable[StoredMessage], changes: PassChanges) -> None:
    """Revise the gauge rows of closed steps that new scalars belong to; those of later steps stay pending."""
    for attempt_id, step in sorted(_steps_of(messages)):
        _apply_to_step(run, attempt_id, step, changes)
    if run.pipeline_state.folded is not None:
        run.pending.forget_scalars(run.pipeline_state.folded)


def _steps_of(messages: Iterable[StoredMessage]) -> set[tuple[int, int]]:
    notices = [message for message in messages if isinstance(message, StoredNotice)]
    return {(notice.attempt_id, notice.message.step) for notice in notices if isinstance(notice.message, wire.Scalars)}


def _apply_to_step(run: LoadedRun, attempt_id: int, step: int, changes: PassChanges) -> None:
    key = run.pipeline_state.gauge_key(attempt_id, step) or BatchKey(attempt_id, step, None)
    if run.pipeline_state.follows(key):
        return
    row = changes.rows.get(key) or run.context.history.batch(key)
    scalars = run.pending.scalars.of(attempt_id, step)
    if row is None:
        changes.tally.unplaced_scalars += 1
    elif scalars.items() - row.scalars.items():
        row = _with_scalars(row, {**row.scalars, **scalars})
        row, state = reconsider(row, context=run.context.pass_context(changes.now), pipeline_state=run.pipeline_state)
        event = batch_event(row, at=changes.now)
        run.apply(BatchChanges(pipeline_state=state, row=row, events=(event,)), changes)
        if run.gauge_row and run.gauge_row.key == key:
            run.gauge_row = row


def _with_scalars(row: BatchRow, scalars: dict[str, float]) -> BatchRow:
    signals = {**row.signals, **signals_of_scalars(scalars)} if row.has_scalars_only else row.signals
    return structs.replace(row, scalars=scalars, signals=signals)
