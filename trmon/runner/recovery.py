"""Recollection: what a worker must know of a run, read back from what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import structlog
from msgspec import structs

from trmon.domain.batches.quarantine import QuarantinePart
from trmon.domain.context.pass_context import Watch
from trmon.domain.model.messages import StoredNotice, decoded
from trmon.domain.pipeline.close_batch import remember
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import Life, ending_of
from trmon.domain.stages.detect import reconsider
from trmon.domain.stages.draft import made_at
from trmon.domain.state.pipeline_state import MIND_VERSION, RunMind
from trmon.domain.state.run_update import Checkpoint, Frontier
from trmon.runner.log_reader import PAGE
from trmon.runner.pending_state import Waiting
from trmon_client.core import wire

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Recollection:
    """A run as its worker left it: the mind, what waits, and how far was read."""

    mind: RunMind
    life: Life
    frontier: Frontier
    checkpoint_ordinal: int = 0
    waiting: Waiting = field(default_factory=Waiting)
    quarantined: Counter[QuarantinePart] = field(default_factory=Counter)


def recall(log: RunLog, watch: Watch) -> Recollection:
    """Return a run's mind from its newest checkpoint and the rows after it, and what notices still mean.

    What rules say while rows are folded again is discarded: the alerts that were written are believed instead.
    A checkpoint may be older than the newest row's late scalars: these are considered once more.
    """
    run = watch.run
    reached = log.reached(run.id)
    quarantined: Counter[QuarantinePart] = Counter()
    mind = _checkpointed(reached.checkpoint, quarantined, run_id=run.id)
    known = Recollection(
        mind=mind,
        life=Life(state=run.state, silent_since=max(run.last_report_at or run.created_at, mind.silent_since)),
        frontier=reached.frontier,
        checkpoint_ordinal=mind.ordinal,
        quarantined=quarantined,
    )
    while rows := log.batches_after(run.id, known.mind.ordinal, limit=PAGE):
        for row in rows:
            quarantined.update(entry.part for entry in row.quarantined if entry.part is QuarantinePart.ROW)
            known.mind = remember(row, watch=watch, mind=known.mind)
    mind = _anchored(known.mind, log)
    newest = log.batch(mind.gauge_keys[-1]) if mind.gauge_keys else None
    if newest is not None:
        mind = reconsider(newest, watch=watch, mind=mind)
    known.mind = mind.believing(log.open_alerts(run.id))
    for notice in _notices(log, run.id, after=known.mind.recall_from, through=known.frontier.notice_id):
        _recall_notice(known, notice)
    return known


def _checkpointed(checkpoint: Checkpoint | None, quarantined: Counter[QuarantinePart], *, run_id: int) -> RunMind:
    """Return the mind of a checkpoint; an empty one, for which all rows are folded, where it cannot be read."""
    if checkpoint is None or checkpoint.version != MIND_VERSION:
        return RunMind()
    try:
        return RunMind.from_bytes(checkpoint.state)
    except (msgspec.MsgspecError, ValueError) as error:
        quarantined[QuarantinePart.CHECKPOINT] += 1
        log.error("checkpoint_quarantined", run_id=run_id, error=str(error))
        return RunMind()


def _anchored(mind: RunMind, log: RunLog) -> RunMind:
    """Rows do not say when the trainer made them; the newest step's first report does."""
    if mind.began_at is not None or mind.first_key is None:
        return mind
    whole, _ = decoded(log.batch_reports(mind.first_key))
    return structs.replace(mind, began_at=made_at(whole[0])) if whole else mind


def _notices(log: RunLog, run_id: int, *, after: int, through: int) -> Iterator[StoredNotice]:
    while page := log.notices_after(run_id, after, limit=PAGE):
        for notice in page:
            if notice.id > through:
                return
            if isinstance(notice, StoredNotice):
                yield notice
        after = page[-1].id


def _recall_notice(known: Recollection, notice: StoredNotice) -> None:
    """Only what may still matter is taken up again: scalars of open steps, and who has left."""
    message, folded = notice.message, known.mind.folded
    place = (notice.attempt_id, message.step) if isinstance(message, wire.Scalars) else None
    if place is not None and folded is not None and place < (folded.attempt_id, folded.step):
        return
    known.waiting.heed(notice)
    if isinstance(message, wire.Finish) and known.life.state.ended:
        known.life = replace(known.life, ending=ending_of(message))
