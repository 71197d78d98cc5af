"""Closes the batches of a run that are complete or out of time, and revises closed ones after late reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import structs

from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.batches.scalar_steps import ScalarRuns, ScalarSteps, ScalarTimes
from trmon.domain.model.identity import BatchKey
from trmon.domain.pipeline.stages.detect import reconsider
from trmon.domain.pipeline.stages.merge import ClosingBatch
from trmon.domain.ports import RunLog
from trmon.runner.advisor import Advisor
from trmon.runner.bound_adaptation import BoundAdaptation
from trmon.runner.loaded_run import LoadedRun
from trmon.runner.pass_changes import PassChanges
from trmon.runner.quarantine import close_or_quarantine, close_scalars_or_quarantine, quarantined_in


class BatchCloser:
    """Sends batches through the pipeline, and passes gauge rows on to the adaptation of bounds and to the advisor."""

    def __init__(
        self,
        log: RunLog,
        run: LoadedRun,
        *,
        adaptation: BoundAdaptation,
        advisor: Advisor,
        grace_seconds: float,
        loaded_at: float,
    ) -> None:
        """Args: grace_seconds: how long a batch waits for missing reports; loaded_at: grace counts from then on."""
        self._log = log
        self._run = run
        self._adaptation = adaptation
        self._advisor = advisor
        self._grace_seconds = grace_seconds
        self._loaded_at = loaded_at

    @property
    def due_at(self) -> float:
        """When the grace period of the first open batch, or step of scalars, ends; infinity: none is open."""
        ends = self._run.pending.assembly.grace_ends(grace_seconds=self._grace_seconds, watching_since=self._loaded_at)
        of_scalars = self._scalar_steps().due_at(self._scalar_times(0.0, caught_up=True))
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
                context=run.pass_context(changes),
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
        for step in self._scalar_steps(caught_up=caught_up).due(self._scalar_times(changes.now, caught_up=caught_up)):
            context = run.pass_context(changes)
            published = close_scalars_or_quarantine(step, context=context, pipeline_state=run.pipeline_state)
            run.apply(published, changes)
            if published.row is not None:
                changes.tally.quarantined.update(entry.part for entry in published.row.quarantined)
            if published.row is not None and published.is_gauge:
                run.gauge_row = published.row
                self._advisor.add_row(published.row)
            changes.tally.close_lags_seconds.append(changes.now - step.newest_at)

    def _scalar_steps(self, *, caught_up: bool = True) -> ScalarSteps:
        run = self._run
        runs = ScalarRuns(
            reporting=run.reporting,
            is_rank_ended=run.pending.assembly.is_rank_ended,
            folded=run.pipeline_state.folded,
            has_ended=caught_up and run.life.state.ended,
        )
        return ScalarSteps(run.pending.scalars, runs)

    def _scalar_times(self, now: float, *, caught_up: bool) -> ScalarTimes:
        grace_seconds = self._grace_seconds if caught_up else math.inf
        return ScalarTimes(now=now, grace_seconds=grace_seconds, watching_since=self._loaded_at)

    def revise(self, late: Mapping[BatchKey, BatchRow], changes: PassChanges) -> None:
        """Compute closed rows again from all their reports.

        A row is left as it is if retention has deleted some of its reports: the late ones are not the whole batch.
        Rules see the scalars of late reports, as they see those of scalars messages.
        """
        run = self._run
        for key, row in late.items():
            batch = run.pending.assembly.reopen(self._log.reports.of_batch(key)).decoded()
            if sum(report.n_sequences for report in batch.reports if report.id <= row.last_report_id) < row.n_sequences:
                continue
            context = run.pass_context(changes)
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
            row = changes.rows.get(key) or self._log.batch(key)
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
        published = close_or_quarantine(closing)
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
            if row is not None:
                self._advisor.add_row(row)
