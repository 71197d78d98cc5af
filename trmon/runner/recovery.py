"""Restores a run's state from the store: its checkpoint, the rows after it, and the notices that still matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import structlog
from msgspec import structs

from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import StoredNotice, decode_reports
from trmon.domain.pipeline.close_batch import replay_row
from trmon.domain.pipeline.stages.detect import reconsider
from trmon.domain.pipeline.stages.draft import made_at
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import Liveness, ending_of
from trmon.domain.state.pipeline_state import STATE_VERSION, PipelineState
from trmon.domain.state.run_update import Frontier, RunProgress
from trmon.runner.log_reader import PAGE
from trmon.runner.pending_state import PendingState
from trmon_client.core import wire

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RecoveredRun:
    """A run as the last worker left it: its pipeline state, its pending batches, and how far it was read."""

    pipeline_state: PipelineState
    life: Liveness
    frontier: Frontier
    checkpoint_ordinal: int = 0
    pending: PendingState = field(default_factory=PendingState)
    quarantined: Counter[QuarantinePart] = field(default_factory=Counter)


def recover_run(log: RunLog, context: PassContext) -> RecoveredRun:
    """Return a run's state from its newest checkpoint, the rows after it and its notices.

    Alerts that the replay raises are discarded, and the stored ones used: they were committed with the rows.
    A checkpoint may be older than the late scalars of the newest row, so rules evaluate that row once more.
    """
    run = context.run
    progress = log.progress(run.id)
    quarantined: Counter[QuarantinePart] = Counter()
    state = _state_of(progress, quarantined, run_id=run.id)
    recovered = RecoveredRun(
        pipeline_state=state,
        life=Liveness(state=run.state, silent_since=max(run.last_report_at or run.created_at, state.silent_since)),
        frontier=progress.frontier,
        checkpoint_ordinal=state.ordinal,
        quarantined=quarantined,
    )
    state = _with_step_start(_replay(log, recovered, context), log)
    newest = log.batch(state.gauge_keys[-1]) if state.gauge_keys else None
    if newest is not None:
        _, state = reconsider(newest, context=context, pipeline_state=state)
    recovered.pipeline_state = state.with_stored_alerts(log.open_alerts(run.id))
    through = recovered.frontier.notice_id
    for notice in _notices(log, run.id, after=recovered.pipeline_state.reread_notices_after, through=through):
        _apply_old_notice(recovered, notice)
    return recovered


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


def _replay(log: RunLog, recovered: RecoveredRun, context: PassContext) -> PipelineState:
    """Return the state after the rows beyond the checkpoint; count the rows that cannot be decoded."""
    state = recovered.pipeline_state
    while rows := log.batches_after(context.run.id, state.ordinal, limit=PAGE):
        for row in rows:
            parts = (entry.part for entry in row.quarantined if entry.part is QuarantinePart.ROW)
            recovered.quarantined.update(parts)
            state = replay_row(row, context=context, pipeline_state=state)
    return state


def _with_step_start(state: PipelineState, log: RunLog) -> PipelineState:
    """Set when the newest step began: its first report says so, rows do not."""
    if state.began_at is not None or state.first_key is None:
        return state
    reports, _ = decode_reports(log.reports.of_batch(state.first_key))
    return structs.replace(state, began_at=made_at(reports[0])) if reports else state


def _notices(log: RunLog, run_id: int, *, after: int, through: int) -> Iterator[StoredNotice]:
    while page := log.reports.notices_after(run_id, after, limit=PAGE):
        for notice in page:
            if notice.id > through:
                return
            if isinstance(notice, StoredNotice):
                yield notice
        after = page[-1].id


def _apply_old_notice(recovered: RecoveredRun, notice: StoredNotice) -> None:
    """Apply what still matters of a notice: scalars of open steps, and which ranks have started or finished."""
    message, folded = notice.message, recovered.pipeline_state.folded
    step = (notice.attempt_id, message.step) if isinstance(message, wire.Scalars) else None
    if step is not None and folded is not None and step < (folded.attempt_id, folded.step):
        return
    recovered.pending.apply_notice(notice)
    if isinstance(message, wire.Finish) and recovered.life.state.ended:
        recovered.life = replace(recovered.life, ending=ending_of(message))
