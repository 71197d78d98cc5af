"""Applies new messages to a run: reports to their batches, notices to its life and its description."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyReport, DamagedReport, StoredNotice, StoredReport
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import after_notice, after_report, after_scalars
from trmon.runner.launch_tracker import LaunchTracker
from trmon.runner.loaded_run import LoadedRun
from trmon.runner.log_reader import StoredMessage
from trmon.runner.pass_changes import PassChanges
from trmon_client.core import wire


class MessageHandler:
    """Handles the messages of one run in the order in which they came."""

    def __init__(self, log: RunLog, run: LoadedRun, *, launches: LaunchTracker) -> None:
        self._log = log
        self._run = run
        self._launches = launches

    def handle(self, messages: Iterable[StoredMessage], changes: PassChanges) -> dict[BatchKey, BatchRow]:
        """Apply messages; return the closed rows for which a report came late."""
        late: dict[BatchKey, BatchRow] = {}
        for message in messages:
            if isinstance(message, DamagedReport) and message.is_late:
                # Its attempt has moved to the lake: its batch is closed for good, and the report follows.
                key = message.key
                place = f"step {key.batch.step}, rank {key.rank}, chunk {key.chunk}"
                self._quarantine(QuarantinePart.REPORT, place, message.reason, changes)
            elif isinstance(message, StoredReport | DamagedReport):
                row = self._handle_report(message, changes)
                if row is not None:
                    late[row.key] = row
            elif isinstance(message, StoredNotice):
                self._handle_notice(message, changes)
            else:
                self._quarantine(QuarantinePart.NOTICE, f"notice {message.id}", message.reason, changes)
        return late

    def _handle_report(self, report: AnyReport, changes: PassChanges) -> BatchRow | None:
        run, change = self._run, None
        if isinstance(report, StoredReport):
            self._launches.record(report.report)
            run.context.record_warnings(report.report.losses.warnings, changes, at=report.received_at)
        if report.id > run.pipeline_state.liveness_report_id:
            run.life, change = after_report(run.life, report)
        late_row = self._add_to_batch(report, changes)
        run.apply_state_change(change, changes)
        return late_row

    def _handle_notice(self, notice: StoredNotice, changes: PassChanges) -> None:
        run, message = self._run, notice.message
        self._launches.record(message)
        if isinstance(message, wire.Scalars) and notice.attempt_id not in run.reporting:
            run.life, change = after_scalars(run.life, notice)
            key = BatchKey(notice.attempt_id, message.step, None)
            self._record_progress(key, changes, at=notice.received_at)
        else:
            run.life, change = after_notice(run.life, notice)
        run.pending.apply_notice(notice)
        if isinstance(message, wire.Finish):
            run.context.record_warnings(message.losses.warnings, changes, at=notice.received_at)
        if isinstance(message, wire.Start) and message.rank == 0:
            self._apply_start(notice, message, changes)
        run.apply_state_change(change, changes)

    def _quarantine(self, part: QuarantinePart, place: str, reason: str, changes: PassChanges) -> None:
        changes.tally.quarantined[part] += 1
        self._run.unreported.append(quarantined(part, place, reason))

    def _add_to_batch(self, report: AnyReport, changes: PassChanges) -> BatchRow | None:
        """Add a report to its open batch, or return the row of its closed batch if the row lacks the report."""
        run, key = self._run, report.key.batch
        run.reporting.add(key.attempt_id)
        self._record_progress(key, changes, at=report.received_at)
        assembly = run.pending.assembly
        is_open = key in assembly.batches or run.pipeline_state.follows(key)
        closed = None if is_open else self._log.batch(key)
        if closed is None:
            assembly.add_report(report)
            return None
        assembly.update_from_report(report)
        if report.id <= closed.last_report_id:
            return None
        changes.tally.late_reports += 1
        return closed

    def _record_progress(self, key: BatchKey, changes: PassChanges, *, at: float) -> None:
        run = self._run
        is_newest = run.newest_key is None or key.order > run.newest_key.order
        if is_newest:
            run.newest_key = key
        run.context.record_progress(key, changes, at=at, is_newest=is_newest)

    def _apply_start(self, notice: StoredNotice, start: wire.Start, changes: PassChanges) -> None:
        """Record what rank 0 states of the run; a new owner's receivers get the open alerts."""
        run = self._run
        before = run.context.run
        run.context.record_start(notice, start, changes)
        alerts, after = run.pipeline_state.open_alerts(), run.context.run
        changes.deliveries += run.context.owner_change(changes.now).deliveries(alerts, before=before, after=after)
