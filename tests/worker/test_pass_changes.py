"""When a checkpoint is due, and what it holds."""

from __future__ import annotations

import pytest
from msgspec import structs

from trmon.domain.pipeline.state import PipelineState
from trmon.worker.pass_changes import CHECKPOINT_BATCHES, LEAST_CHECKPOINT_BATCHES, CheckpointSchedule, checkpoint_of


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
    checkpoints.record(PipelineState(ordinal=200), now=1000.0)
    assert checkpoints.is_due(PipelineState(ordinal=200 + folded), now=1000.0 + seconds, is_done=is_done) == is_due


def test_a_checkpoint_restores_the_state_with_the_positions_of_the_restart() -> None:
    pipeline_state = PipelineState(ordinal=7, steps=7, step_seconds=2.5)
    made = checkpoint_of(pipeline_state, reread_notices_after=3, liveness_report_id=41, silent_since=50.0)
    assert made.ordinal == 7
    assert PipelineState.from_bytes(made.state) == structs.replace(
        pipeline_state, reread_notices_after=3, liveness_report_id=41, silent_since=50.0
    )
