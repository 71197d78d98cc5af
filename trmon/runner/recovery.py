"""Recollection: what a worker must know of a run, read back from what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import structlog
from msgspec import structs

from trmon.domain.batches.quarantine import QuarantinePart
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import StoredNotice, decoded
from trmon.domain.pipeline.close_batch import replay_row
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import Life, ending_of
from trmon.domain.stages.detect import reconsider
from trmon.domain.stages.draft import made_at
from trmon.domain.state.pipeline_state import STATE_VERSION, PipelineState
from trmon.domain.state.run_update import Checkpoint, Frontier
from trmon.runner.log_reader import PAGE
from trmon.runner.pending_state import PendingState
from trmon_client.core import wire

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RecoveredRun:
    """A run as its worker left it: the mind, what waits, and how far was read."""

    pipeline_state: PipelineState
    life: Life
    frontier: Frontier
    checkpoint_ordinal: int = 0
    waiting: PendingState = field(default_factory=PendingState)
    quarantined: Counter[QuarantinePart] = field(default_factory=Counter)


def recover_run(log: RunLog, context: PassContext) -> RecoveredRun:
    """Return a run's mind from its newest checkpoint and the rows after it, and what notices still mean.

    What rules say while rows are folded again is discarded: the alerts that were written are believed instead.
    A checkpoint may be older than the newest row's late scalars: these are considered once more.
    """
    run = context.run
    reached = log.reached(run.id)
    quarantined: Counter[QuarantinePart] = Counter()
    pipeline_state = _checkpointed(reached.checkpoint, quarantined, run_id=run.id)
    known = RecoveredRun(
        pipeline_state=pipeline_state,
        life=Life(state=run.state, silent_since=max(run.last_report_at or run.created_at, pipeline_state.silent_since)),
        frontier=reached.frontier,
        checkpoint_ordinal=pipeline_state.ordinal,
        quarantined=quarantined,
    )
    while rows := log.batches_after(run.id, known.pipeline_state.ordinal, limit=PAGE):
        for row in rows:
            quarantined.update(entry.part for entry in row.quarantined if entry.part is QuarantinePart.ROW)
            known.pipeline_state = replay_row(row, context=context, pipeline_state=known.pipeline_state)
    pipeline_state = _anchored(known.pipeline_state, log)
    newest = log.batch(pipeline_state.gauge_keys[-1]) if pipeline_state.gauge_keys else None
    if newest is not None:
        pipeline_state = reconsider(newest, context=context, pipeline_state=pipeline_state)
    known.pipeline_state = pipeline_state.believing(log.open_alerts(run.id))
    for notice in _notices(log, run.id, after=known.pipeline_state.recall_from, through=known.frontier.notice_id):
        _recall_notice(known, notice)
    return known


def _checkpointed(checkpoint: Checkpoint | None, quarantined: Counter[QuarantinePart], *, run_id: int) -> PipelineState:
    """Return the mind of a checkpoint; an empty one, for which all rows are folded, where it cannot be read."""
    if checkpoint is None or checkpoint.version != STATE_VERSION:
        return PipelineState()
    try:
        return PipelineState.from_bytes(checkpoint.state)
    except (msgspec.MsgspecError, ValueError) as error:
        quarantined[QuarantinePart.CHECKPOINT] += 1
        log.error("checkpoint_quarantined", run_id=run_id, error=str(error))
        return PipelineState()


def _anchored(pipeline_state: PipelineState, log: RunLog) -> PipelineState:
    """Rows do not say when the trainer made them; the newest step's first report does."""
    if pipeline_state.began_at is not None or pipeline_state.first_key is None:
        return pipeline_state
    whole, _ = decoded(log.batch_reports(pipeline_state.first_key))
    return structs.replace(pipeline_state, began_at=made_at(whole[0])) if whole else pipeline_state


def _notices(log: RunLog, run_id: int, *, after: int, through: int) -> Iterator[StoredNotice]:
    while page := log.notices_after(run_id, after, limit=PAGE):
        for notice in page:
            if notice.id > through:
                return
            if isinstance(notice, StoredNotice):
                yield notice
        after = page[-1].id


def _recall_notice(known: RecoveredRun, notice: StoredNotice) -> None:
    """Only what may still matter is taken up again: scalars of open steps, and who has left."""
    message, folded = notice.message, known.pipeline_state.folded
    place = (notice.attempt_id, message.step) if isinstance(message, wire.Scalars) else None
    if place is not None and folded is not None and place < (folded.attempt_id, folded.step):
        return
    known.waiting.heed(notice)
    if isinstance(message, wire.Finish) and known.life.state.ended:
        known.life = replace(known.life, ending=ending_of(message))
