"""The pipeline: what happens to a batch when it closes, in one tuple."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias, cast

from trmon.domain.batch import BatchRow
from trmon.domain.mind import RunMind
from trmon.domain.stages.detect import detect
from trmon.domain.stages.draft import Draft, draft
from trmon.domain.stages.fold import amend, fold
from trmon.domain.stages.measure import measure
from trmon.domain.stages.merge import Closing, merge
from trmon.domain.stages.publish import Published, publish
from trmon.domain.stages.replay import replay
from trmon.domain.stages.transition import Judged, transition
from trmon.domain.watch import Watch

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

REMEMBERING: tuple[Stage, ...] = (fold, detect, transition)
"""What a stored row goes through when a mind is rebuilt; what it says is discarded, as it was written with the row."""


def close(closing: Closing) -> Published:
    """Return everything that a batch changes when it closes, or when it is revised if it has a former row."""
    return cast(Published, _through(STAGES if closing.former is None else REVISION, closing))


def remember(row: BatchRow, *, watch: Watch, mind: RunMind) -> RunMind:
    """Return the mind after a stored row."""
    return cast(Judged, _through(REMEMBERING, Draft(watch=watch, mind=mind, row=row))).mind


def _through(stages: tuple[Stage, ...], value: Any) -> Any:
    return reduce(lambda made, stage: stage(made), stages, value)
