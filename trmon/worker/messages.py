"""Reads a run's new messages and applies them to its batches, life and description; checks its silence by the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyNotice, AnyReport, DamagedNotice, DamagedReport, StoredNotice, StoredReport, Unread
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.pipeline.transition import apply_duplicate_trainers
from trmon.domain.runs.attempts import find_duplicate_trainers
from trmon.domain.runs.liveness import (
    HEARTBEAT_FRESH_SECONDS,
    SilenceLimits,
    after_notice,
    after_report,
    after_scalars,
    after_silence,
)
from trmon.domain.runs.run import RunState
from trmon.store.repositories.run_log import RunLog
from trmon.worker.pass_changes import PassChanges
from trmon.worker.recovery import PAGE, LoadedRun
from trmon_client.core import wire

StoredMessage: TypeAlias = AnyReport | AnyNotice
_Message = TypeVar("_Message", AnyReport, AnyNotice)
QUANTUM = 40
"""How many messages of a kind one pass over a run reads: the messages of other runs wait no longer than these take."""
CHECK_SECONDS = 5.0
"""How often the store is queried while two trainers report; each sends a heartbeat every 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Reports and notices in the order in which they came; `caught_up`: there are no more."""

    messages: tuple[StoredMessage, ...]
    caught_up: bool


class LogReader:
    """Reads a run's log forward; `read` is how far."""

    def __init__(self, log: RunLog, run_id: int, *, read: Frontier) -> None:
        self._log = log
        self._run_id = run_id
        self.read = read

    def page_of(self, unread: Unread) -> MessagePage:
        """Return messages that were read together with those of other runs: all since the last page."""
        return self._page(unread.notices, unread.reports, caught_up=True)

    def next_page(self) -> MessagePage:
        """Return the next messages of both kinds, never one that follows an unread message of the other kind.

        If there are more messages than a page holds, those of its last request are left for the next one, unless there
        is no other: the rest of them may be unread. One request with both kinds gets a larger page.
        """
        for limit in (QUANTUM, PAGE):
            unread = self._log.reports.unread_of(self._run_id, self.read, limit=limit)
            full = [kind for kind in (unread.notices, unread.reports) if len(kind) == limit]
            if not full:
                return self._page(unread.notices, unread.reports, caught_up=True)
            end = min(_end_of_whole_requests(kind) for kind in full)
            notices, reports = _through(end, unread.notices), _through(end, unread.reports)
            is_cut = any(kind[-1].received_at == end for kind in full)
            if not (is_cut and notices and reports):
                break
        return self._page(notices, reports, caught_up=False)

    def next_message(self) -> MessagePage:
        """Return the next message alone, in the same order; without one, the page is the last."""
        unread = self._log.reports.unread_of(self._run_id, self.read, limit=1)
        first = min((*unread.notices, *unread.reports), key=_order, default=None)
        notices = [notice for notice in unread.notices if notice is first]
        reports = [report for report in unread.reports if report is first]
        return self._page(notices, reports, caught_up=first is None)

    def _page(self, notices: Sequence[AnyNotice], reports: Sequence[AnyReport], *, caught_up: bool) -> MessagePage:
        self.read = Frontier(
            report_id=reports[-1].id if reports else self.read.report_id,
            notice_id=notices[-1].id if notices else self.read.notice_id,
        )
        messages: list[StoredMessage] = [*notices, *reports]
        return MessagePage(messages=tuple(sorted(messages, key=_order)), caught_up=caught_up)


def _end_of_whole_requests(messages: Sequence[StoredMessage]) -> float:
    """Return when the last request came before the one that the page ends in; that one's time if there is no other."""
    end = messages[-1].received_at
    return next((message.received_at for message in reversed(messages) if message.received_at != end), end)


def _through(end: float, messages: Sequence[_Message]) -> Sequence[_Message]:
    """Return the messages through the last one that came by a time: some, even if the clock was set back."""
    n = len(messages)
    while n and messages[n - 1].received_at > end:
        n -= 1
    return messages[:n]


def _order(stored: StoredMessage) -> tuple[float, float]:
    """Messages of one request have one time: their trainer's clock orders them, and damaged ones come last."""
    if isinstance(stored, DamagedReport | DamagedNotice):
        return stored.received_at, math.inf
    message = stored.report if isinstance(stored, StoredReport) else stored.message
    return stored.received_at, message.sent_at


Damaged: TypeAlias = DamagedReport | DamagedNotice
MessageId = tuple[bool, int]
"""Whether a message is a report, and its id."""


def message_id(message: StoredMessage) -> MessageId:
    """Return what a message is known by within its run."""
    return isinstance(message, StoredReport | DamagedReport), message.id


def set_aside(message: StoredMessage, error: Exception) -> Damaged:
    """Return a message that fails the pass as one that cannot be processed; no batch takes it the second time."""
    given: dict[str, Any] = {"id": message.id, "run_id": message.run_id, "received_at": message.received_at}
    given["reason"] = f"{type(error).__name__}: {error}"
    if isinstance(message, StoredReport | DamagedReport):
        return DamagedReport(**given, key=message.key, is_late=isinstance(message, DamagedReport))
    return DamagedNotice(**given, attempt_id=message.attempt_id)


def newest_sent_at(messages: Sequence[StoredMessage]) -> float | None:
    """Return when the last report or scalars were sent by the sender's clock; None if there are none."""
    for message in reversed(messages):
        if isinstance(message, StoredReport):
            return message.report.sent_at
        if isinstance(message, StoredNotice) and isinstance(message.message, wire.Scalars):
            return message.message.sent_at
    return None


class LivenessCheck:
    """Checks one run's silence and its launches, and says when the next check is due.

    It remembers the last launch of each rank, and queries the store only where it has changed, and once at the start,
    since the launch before may be unknown.
    """

    def __init__(self, log: RunLog, run: LoadedRun, *, patience: SilenceLimits, loaded_at: float) -> None:
        """Args: loaded_at: silence counts from then on."""
        self._log = log
        self._run = run
        self._patience = patience
        self._loaded_at = loaded_at
        self._launches: dict[int, str] = {}
        self._launches_due_at = 0.0

    def record(self, message: wire.Message) -> None:
        """Remember the message's launch; if it is another one than before, or ends, a check is due at once."""
        former = self._launches.get(message.rank)
        self._launches[message.rank] = message.launch
        if (former is not None and former != message.launch) or isinstance(message, wire.Finish):
            self._launches_due_at = 0.0

    @property
    def due_at(self) -> float:
        """When a check is due without any message; infinity: never."""
        run = self._run
        if run.life.state is not RunState.RUNNING:
            return self.launches_due_at
        limit = self._patience.limit_seconds(run.pipeline_state.expected_step_seconds, has_heartbeat=False)
        return min(self.launches_due_at, max(run.life.silent_since, self._loaded_at) + limit)

    @property
    def launches_due_at(self) -> float:
        """When the launches are checked; never for a finished run, on which no alert fires."""
        return math.inf if self._run.life.state is RunState.FINISHED else self._launches_due_at

    def check(self, changes: PassChanges) -> None:
        """Record a stall, and raise or resolve the alert of two trainers."""
        self._check_silence(changes)
        self._check_launches(changes)

    def _check_silence(self, changes: PassChanges) -> None:
        run = self._run
        run.life, change = after_silence(
            run.life,
            now=changes.now,
            watching_since=self._loaded_at,
            last_seen=partial(self._log.last_seen, run.id),
            expected_step_seconds=run.pipeline_state.expected_step_seconds,
            limits=self._patience,
        )
        run.apply_state_change(change, changes)

    def _check_launches(self, changes: PassChanges) -> None:
        run = self._run
        if self._launches_due_at > changes.now:
            return
        since = changes.now - HEARTBEAT_FRESH_SECONDS
        found = find_duplicate_trainers(self._log.active_launches(run.id, since=since))
        self._launches_due_at = math.inf if found is None else changes.now + CHECK_SECONDS
        if run.life.state is RunState.FINISHED:
            found = None
        context = run.context.pass_context(changes.now)
        run.apply_transitions(
            apply_duplicate_trainers(found, context=context, pipeline_state=run.pipeline_state, now=changes.now),
            changes,
        )


class MessageHandler:
    """Handles the messages of one run in the order in which they came."""

    def __init__(self, run: LoadedRun, *, liveness: LivenessCheck) -> None:
        self._run = run
        self._liveness = liveness

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
            self._liveness.record(report.report)
            run.context.record_warnings(report.report.losses.warnings, changes, at=report.received_at)
        if report.id > run.pipeline_state.liveness_report_id:
            run.life, change = after_report(run.life, report)
        late_row = self._add_to_batch(report, changes)
        run.apply_state_change(change, changes)
        return late_row

    def _handle_notice(self, notice: StoredNotice, changes: PassChanges) -> None:
        run, message = self._run, notice.message
        self._liveness.record(message)
        if isinstance(message, wire.Scalars) and notice.attempt_id not in run.reporting:
            run.life, change = after_scalars(run.life, notice)
            key = BatchKey(notice.attempt_id, message.step, None)
            self._record_progress(key, changes, at=notice.received_at)
        else:
            run.life, change = after_notice(run.life, notice)
        run.pending.apply_notice(notice)
        if isinstance(message, wire.Finish):
            run.context.record_warnings(message.losses.warnings, changes, at=notice.received_at)
        if isinstance(message, wire.Pause) and isinstance(message.checkpoint, wire.SavedCheckpoint):
            run.context.record_checkpoint(message.checkpoint, changes, at=notice.received_at)
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
        closed = None if is_open else run.context.history.batch(key)
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
