"""When a run's mind is written again."""

from __future__ import annotations

import pytest
from msgspec import structs

from trmon.domain.state.pipeline_state import PipelineState
from trmon.runner.checkpoints import CHECKPOINT_BATCHES, LEAST_CHECKPOINT_BATCHES, CheckpointSchedule, checkpoint_of


@pytest.mark.parametrize(
    ("folded", "seconds", "is_done", "is_due"),
    [
        (CHECKPOINT_BATCHES - 1, 1.0, False, False),
        (CHECKPOINT_BATCHES, 1.0, False, True),
        (LEAST_CHECKPOINT_BATCHES, 29.0, False, False),
        (LEAST_CHECKPOINT_BATCHES, 30.0, False, True),
        (LEAST_CHECKPOINT_BATCHES - 1, 3600.0, False, False),
        (1, 1.0, True, True),
        (0, 3600.0, True, False),
    ],
)
def test_a_checkpoint_is_due(folded: int, seconds: float, is_done: bool, is_due: bool) -> None:
    checkpoints = CheckpointSchedule(ordinal=100, now=0.0)
    checkpoints.made(PipelineState(ordinal=200), now=1000.0)
    assert checkpoints.is_due(PipelineState(ordinal=200 + folded), now=1000.0 + seconds, is_done=is_done) == is_due


def test_a_checkpoint_gives_the_mind_again_with_what_a_restart_need_not_hear() -> None:
    pipeline_state = PipelineState(ordinal=7, steps=7, step_seconds=2.5)
    made = checkpoint_of(pipeline_state, recall_from=3, heard_through=41, silent_since=50.0)
    assert made.ordinal == 7
    assert PipelineState.from_bytes(made.state) == structs.replace(
        pipeline_state, recall_from=3, heard_through=41, silent_since=50.0
    )
