"""The state of one run in memory, and how it is recovered: its checkpoint, later rows, notices that still matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import structlog
from msgspec import structs

from trmon.domain.alerts.alert import Transition
from trmon.domain.batches.assembly import Assembly
from trmon.domain.batches.batch import BatchRow, Quarantined, QuarantinePart
from trmon.domain.batches.scalar_steps import PendingScalars
from trmon.domain.identity import BatchKey
from trmon.domain.messages import StoredNotice, decode_reports
from trmon.domain.pipeline.close_batch import replay_row
from trmon.domain.pipeline.draft import made_at
from trmon.domain.pipeline.fold import reconsider
from trmon.domain.pipeline.publish import BatchChanges, Frontier, RunProgress, publish_transitions
from trmon.domain.pipeline.state import STATE_VERSION, PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_state_change
from trmon.domain.runs.liveness import Liveness, StateChange, time_by_now
from trmon.store.repositories.run_log import RunLog
from trmon.worker.pass_changes import PassChanges
from trmon.worker.run_context import RunContext, RunHistory
from trmon_client.core import wire

PAGE = 512
"""How many rows of a run are read at once, and at most how many messages."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PendingState:
    """Open batches, scalars of steps to come, and the notices in which ranks finished."""

    assembly: Assembly = field(default_factory=Assembly)
    scalars: PendingScalars = field(default_factory=PendingScalars)
    _finish_ids: dict[tuple[int, int], int] = field(default_factory=dict)

    def apply_notice(self, notice: StoredNotice) -> None:
        """Apply a notice to the batches that are open or to come."""
        message = notice.message
        if isinstance(message, wire.Scalars):
            self.scalars.add(notice, step=message.step)
        elif isinstance(message, wire.Start):
            self.assembly.rank_started(notice.attempt_id, message.rank)
            self._finish_ids.pop((notice.attempt_id, message.rank), None)
        elif isinstance(message, wire.Finish):
            self.assembly.rank_ended(notice.attempt_id, message)
            self._finish_ids[notice.attempt_id, message.rank] = notice.id

    def forget_scalars(self, folded: BatchKey) -> None:
        """Drop the scalars of steps before the newest folded batch."""
        self.scalars.forget_before(folded, keeping=self._open_attempts())

    def restart_frontier(self, read: Frontier) -> Frontier:
        """Return the frontier from which a restart reads reports: before the oldest report of an open batch."""
        oldest = self.assembly.oldest_report_id()
        return read if oldest is None else replace(read, report_id=oldest - 1)

    def reread_notices_after(self, read: Frontier, *, newest: BatchKey | None) -> int:
        """Return the notice id after which a restart reads notices again: before pending scalars and finished ranks."""
        attempts = self._open_attempts() | ({newest.attempt_id} if newest else set())
        ids = [id_ for (attempt_id, _), id_ in self._finish_ids.items() if attempt_id in attempts]
        oldest = self.scalars.oldest_id()
        return min([*ids, *([] if oldest is None else [oldest]), read.notice_id + 1]) - 1

    def _open_attempts(self) -> set[int]:
        return {key.attempt_id for key in self.assembly.batches}


@dataclass(slots=True, kw_only=True)
class LoadedRun:
    """A run, its pipeline state and its pending batches.

    `frontier` and `checkpoint_ordinal` are where the last worker stopped, `quarantined` counts between passes.
    `gauge_row` is the newest row that gauges show, `newest_key` the newest batch of which a report came, and
    `unreported` what was quarantined since the last closed batch: the next one names it. `reporting` are the attempts
    of which a report came: scalars of theirs make no rows of their own.
    """

    context: RunContext
    pipeline_state: PipelineState
    life: Liveness
    frontier: Frontier
    checkpoint_ordinal: int
    pending: PendingState = field(default_factory=PendingState)
    gauge_row: BatchRow | None = None
    newest_key: BatchKey | None = None
    quarantined: Counter[QuarantinePart] = field(default_factory=Counter)
    unreported: list[Quarantined] = field(default_factory=list)
    reporting: set[int] = field(default_factory=set)

    @property
    def id(self) -> int:
        """The run's id."""
        return self.context.run.id

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and no batch is open."""
        return self.life.state.ended and not self.pending.assembly.batches

    def apply(self, published: BatchChanges, changes: PassChanges) -> None:
        """Adopt the state after a batch or a transition, and add its output to the pass."""
        self.pipeline_state = published.pipeline_state
        changes.add(published)

    def apply_transitions(self, judged: tuple[tuple[Transition, ...], PipelineState], changes: PassChanges) -> None:
        """Adopt the state after rules over the run itself, and add their alerts to the pass."""
        transitions, self.pipeline_state = judged
        if transitions:
            context = self.context.pass_context(changes.now)
            self.apply(publish_transitions(transitions, context=context, pipeline_state=self.pipeline_state), changes)

    def apply_state_change(self, change: StateChange | None, changes: PassChanges) -> None:
        """Record a change of the run's state, and evaluate the rules over states."""
        if change is None:
            return
        self.context.record_state(change, changes)
        run = self.context.run
        key = self.newest_key or BatchKey(run.attempt_id or 0, run.last_step or 0, None)
        context = self.context.pass_context(changes.now)
        self.apply_transitions(
            apply_state_change(change, context=context, pipeline_state=self.pipeline_state, key=key), changes
        )


def recover_run(log: RunLog, context: RunContext, *, now: float) -> LoadedRun:
    """Return a run as the last worker left it, from its newest checkpoint, the rows after it and its notices.

    Alerts that the replay raises are discarded, and the stored ones used: they were committed with the rows.
    A checkpoint may be older than the late scalars of the newest row, so rules evaluate that row once more.
    """
    description, progress = context.run, log.progress(context.run.id)
    quarantined: Counter[QuarantinePart] = Counter()
    state = _state_of(progress, quarantined, run_id=description.id)
    silent_since = max(description.newest_at, state.silent_since)
    run = LoadedRun(
        context=context,
        pipeline_state=state,
        life=Liveness(state=description.state, silent_since=silent_since),
        frontier=progress.frontier,
        checkpoint_ordinal=state.ordinal,
        quarantined=quarantined,
    )
    judging = context.pass_context(now)
    state = _with_step_start(_replay(run, judging), context.history)
    run.gauge_row = context.history.batch(state.gauge_keys[-1]) if state.gauge_keys else None
    if run.gauge_row is not None:
        _, state = reconsider(run.gauge_row, context=judging, pipeline_state=state)
    run.pipeline_state = state.with_stored_alerts(log.open_alerts(run.id))
    for notice in _notices(log, run.id, after=state.reread_notices_after, through=run.frontier.notice_id):
        _apply_old_notice(run, notice)
    run.life = replace(run.life, silent_since=time_by_now(run.life.silent_since, now=now))
    run.newest_key = state.folded
    folded = None if state.folded is None else context.history.batch(state.folded)
    if folded is not None and not folded.has_scalars_only:
        run.reporting.add(folded.key.attempt_id)
    return run


def _state_of(progress: RunProgress, quarantined: Counter[QuarantinePart], *, run_id: int) -> PipelineState:
    """Return the state of a checkpoint; if it cannot be read an empty one, from which all rows are replayed.

    A run whose rows have moved to the lake counts its batches on.
    """
    checkpoint = progress.checkpoint
    if checkpoint is None or checkpoint.version != STATE_VERSION:
        return PipelineState(ordinal=progress.moved_ordinal)
    try:
        return PipelineState.from_bytes(checkpoint.state)
    except (msgspec.MsgspecError, ValueError) as error:
        quarantined[QuarantinePart.CHECKPOINT] += 1
        log.error("checkpoint_quarantined", run_id=run_id, error=str(error))
        return PipelineState()


def _replay(run: LoadedRun, context: PassContext) -> PipelineState:
    """Return the state after the rows beyond the checkpoint; count the rows that cannot be decoded."""
    state = run.pipeline_state
    while rows := run.context.history.batches_after(context.run.id, state.ordinal, limit=PAGE):
        for row in rows:
            run.context.beat()
            parts = (entry.part for entry in row.quarantined if entry.part is QuarantinePart.ROW)
            run.quarantined.update(parts)
            state = replay_row(row, context=context, pipeline_state=state)
    return state


def _with_step_start(state: PipelineState, history: RunHistory) -> PipelineState:
    """Set when the newest step began: its first report says so, rows do not."""
    if state.began_at is not None or state.first_key is None:
        return state
    reports, _ = decode_reports(history.reports_of(state.first_key))
    return structs.replace(state, began_at=made_at(reports[0])) if reports else state


def _notices(log: RunLog, run_id: int, *, after: int, through: int) -> Iterator[StoredNotice]:
    while page := log.reports.notices_after(run_id, after, limit=PAGE):
        for notice in page:
            if notice.id > through:
                return
            if isinstance(notice, StoredNotice):
                yield notice
        after = page[-1].id


def _apply_old_notice(run: LoadedRun, notice: StoredNotice) -> None:
    """Apply what still matters of a notice: scalars of open steps, and which ranks have started or finished."""
    message, folded = notice.message, run.pipeline_state.folded
    step = (notice.attempt_id, message.step) if isinstance(message, wire.Scalars) else None
    if step is not None and folded is not None and step < (folded.attempt_id, folded.step):
        return
    run.pending.apply_notice(notice)
    if isinstance(message, wire.Finish) and run.life.state.ended:
        run.life = replace(run.life, ending=message)
