"""The pipeline: what happens to a batch when it closes, in one tuple."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias, cast

from trmon.domain.batches.batch import BatchRow
from trmon.domain.context.pass_context import Watch
from trmon.domain.stages.detect import detect
from trmon.domain.stages.draft import Draft, draft
from trmon.domain.stages.fold import amend, fold
from trmon.domain.stages.measure import measure
from trmon.domain.stages.merge import Closing, merge
from trmon.domain.stages.publish import Published, batch_event, publish
from trmon.domain.stages.replay import replay
from trmon.domain.stages.transition import Judged, transition
from trmon.domain.stages.withhold import withhold
from trmon.domain.state.pipeline_state import RunMind

Stage: TypeAlias = Callable[[Any], Any]
"""A pure function from one stage's value to the next's; each file in `stages` defines both."""

STAGES: tuple[Stage, ...] = (
    merge,  # Closing  -> Merged     the reports of all ranks and chunks become one set of columns
    measure,  # Merged   -> Measured   signals
    replay,  # Measured -> Replayed   the active policy and its shadows decide; compared with the trainer's decision
    draft,  # Replayed -> Draft      the row, as far as the batch alone tells it
    fold,  # Draft    -> Folded     into the mind of the run, once and in order
    detect,  # Folded   -> Detected   what the rules say of it
    transition,  # Detected -> Judged     pending, firing, resolved
    publish,  # Judged   -> Published  rows, events and deliveries
)
"""What a batch goes through when it closes."""

REVISION: tuple[Stage, ...] = (merge, measure, replay, draft, amend, detect, transition, publish)
"""What a closed batch goes through when a report comes late: its row changes, the mind does not."""

WITHHOLDING: tuple[Stage, ...] = (fold, detect, transition, publish)
"""What the row of a batch that cannot be judged goes through, so that it is told and the next one follows it."""

REMEMBERING: tuple[Stage, ...] = (fold, detect, transition)
"""What a stored row goes through when a mind is rebuilt; what it says is discarded, as it was written with the row."""


def close(closing: Closing) -> Published:
    """Return everything that a batch changes when it closes, or when it is revised if it has a former row."""
    return cast(Published, _through(STAGES if closing.former is None else REVISION, closing))


def withheld(closing: Closing, error: Exception | str) -> Published:
    """Return what a batch that cannot be judged changes: a row that names the error, and the alert over it.

    Where not even such a row can be folded, it is written as it is, and the mind passes over it.
    """
    drafted = withhold(closing, error)
    stages = WITHHOLDING if closing.former is None else (amend, *WITHHOLDING[1:])
    try:
        return cast(Published, _through(stages, drafted))
    except Exception:  # noqa: BLE001 - the row says already why the batch was not judged
        mind = closing.mind.passing(drafted.row.key, ordinal=drafted.row.ordinal)
        events = (batch_event(drafted.row, at=closing.watch.now),)
        return Published(mind=mind, row=drafted.row, events=events)


def remember(row: BatchRow, *, watch: Watch, mind: RunMind) -> RunMind:
    """Return the mind after a stored row; it passes over one that cannot be folded."""
    try:
        return cast(Judged, _through(REMEMBERING, Draft(watch=watch, mind=mind, row=row))).mind
    except Exception:  # noqa: BLE001 - the row was judged when it was written
        return mind.passing(row.key, ordinal=row.ordinal)


def _through(stages: tuple[Stage, ...], value: Any) -> Any:
    return reduce(lambda made, stage: stage(made), stages, value)
